"""Everything that answering prompts needs, opened from a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from db.schemas import SkipProfile
from db.store import Store
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.serving import ServingConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, ProfileNotFoundError, ProfileSourceError, StoreError
from specdec_core.models.target import Target
from specdec_core.models.view import TargetView
from specdec_core.serving.controller import AUTO, RuntimeController
from specdec_core.serving.generator import TextGenerator
from specdec_core.serving.profile import ServedProfile, TargetFacts, find_fault
from specdec_core.serving.rest import RestProfiles
from specdec_core.serving.routing import Router
from specdec_core.serving.sources import FileProfiles, NoProfiles, OneProfile, ProfileSource
from tasks.drafter_data import drafter_data
from tasks.prepare import TargetInfo, prepare_target
from tasks.runtime import LogLine


@dataclass(frozen=True, slots=True)
class Serving:
    """A loaded target with what chooses its view and what decodes with it."""

    info: TargetInfo
    target: Target
    controller: RuntimeController[TargetView]
    generator: TextGenerator


@contextmanager
def open_serving(
    config: ServingConfig, settings: Settings, notify: LogLine, *, needs_router: bool = True
) -> Iterator[Serving]:
    """Load what `config` names; the store is closed when the block ends.

    Args:
        config: What to serve.
        settings: Caches, device, threads, store.
        notify: Takes one line for the user.
        needs_router: Whether a request may ask for a guess of its domain.

    Raises:
        ConfigError: if target, drafter, skip set or the place of profiles cannot be used.
    """
    drafter = parse_drafter(config.drafter)
    info = prepare_target(config.target, settings, config.dtype)
    outside = [layer for layer in config.protected_layers if not 0 <= layer < info.num_layers]
    if outside:
        raise ConfigError(
            f"protected layers {outside} are none of {info.reference}, which has layers 0 to "
            f"{info.num_layers - 1}: choose among these"
        )
    drafter_data(
        drafter,
        None,
        target=info.reference,
        tokenizer_identity=info.tokenizer_identity,
        settings=settings,
    )
    facts = TargetFacts(
        reference=info.reference,
        identity=info.identity,
        dtype=info.dtype,
        num_layers=info.num_layers,
        drafter=config.drafter,
        protected=frozenset(config.protected_layers),
        prefills=frozenset({"sparse", "dense"}),
    )
    with ExitStack() as stack:
        source = _source(config, facts, settings, stack)
        router = _router(config.min_confidence) if needs_router else None
        notify(f"loading {info.reference} in {info.dtype} on {info.device}")
        target = _load(info, settings)
        controller = RuntimeController(facts, source, target.view, router)
        generator = TextGenerator(target, drafter, _Drafts(info, target, settings).load)
        yield Serving(info, target, controller, generator)


class StoreProfiles:
    """The active profiles of one target in a store."""

    def __init__(self, store: Store, facts: TargetFacts) -> None:
        self._store, self._facts = store, facts

    def find(self, domain: str) -> ServedProfile | None:
        """Return the active profile of `domain`.

        Where there is none for these very files, one for another revision under the same reference
        is returned, so that it is refused for what it is.

        Raises:
            ProfileSourceError: if the store cannot be read.
        """
        for target in (self._facts.identity, self._facts.reference):
            try:
                return served(self._resolve(target, domain))
            except ProfileNotFoundError:
                continue
            except StoreError as error:
                raise ProfileSourceError(f"the store cannot be read: {error}") from error
        return None

    def _resolve(self, target: str, domain: str) -> SkipProfile:
        facts = self._facts
        return self._store.profiles.resolve(target, domain, facts.drafter, facts.dtype)


def served(profile: SkipProfile) -> ServedProfile:
    """Return what a serving system needs to know of a stored profile."""
    shared = ServedProfile.model_fields.keys() - {"label"}
    facts = {name: getattr(profile, name) for name in shared}
    return ServedProfile(label=f"profile {profile.id}", **facts)


def _source(
    config: ServingConfig, facts: TargetFacts, settings: Settings, stack: ExitStack
) -> ProfileSource:
    if config.skip is not None:
        by_hand = ServedProfile(
            label="the set given by hand",
            domain="",
            skip=config.skip,
            prefill=config.prefill,
            status="active",
        )
        if fault := find_fault(by_hand, facts):
            raise ConfigError(f"skip set {config.skip!r} cannot be used: {fault.text}")
        return OneProfile(by_hand)
    if config.profiles == "none":
        return NoProfiles()
    if config.profiles == "store":
        store = stack.enter_context(Store.open(settings.resolved_database_url))
        return StoreProfiles(store, facts)
    if config.profiles.startswith(("http://", "https://")):
        return RestProfiles(
            config.profiles, facts, api_key=settings.api_key, refresh_s=config.refresh_s
        )
    path = Path(config.profiles).expanduser()
    if not path.exists():
        raise ConfigError(
            f"there is no domain map {path}: give its path, the address of a REST API, 'store' or "
            "'none'"
        )
    return FileProfiles(path)


def _router(min_confidence: float) -> Router:
    from specdec_core.serving.router import train_router  # scikit-learn takes a second to import

    return train_router(min_confidence=min_confidence)


def _load(info: TargetInfo, settings: Settings) -> Target:
    import torch

    from specdec_core.models.loading import load_target
    from specdec_core.models.reference import resolve_model

    torch.set_num_threads(settings.threads)
    resolved = resolve_model(info.reference, settings.cache_dir)
    return load_target(resolved, dtype=info.dtype, device=info.device, settings=settings)


class _Drafts:
    """Draft models, each loaded once in the target's type."""

    def __init__(self, info: TargetInfo, target: Target, settings: Settings) -> None:
        self._info, self._settings = info, settings
        self._loaded = {info.identity: target}

    def load(self, reference: str) -> Target:
        from specdec_core.models.loading import load_target
        from specdec_core.models.reference import resolve_model

        model = resolve_model(reference, self._settings.cache_dir)
        if model.identity not in self._loaded:
            self._loaded[model.identity] = load_target(
                model,
                dtype=self._info.dtype,
                device=self._info.device,
                settings=self._settings,
                is_draft=True,
            )
        return self._loaded[model.identity]


def is_guessing(config: ServingConfig) -> bool:
    """Whether requests that name no domain have it guessed."""
    return config.asked_domain == AUTO
