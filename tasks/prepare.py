"""Resolve and check everything a run needs before a model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from db.schemas import SuiteRecord, TargetRecord
from db.store import Store
from specdec_core.config.drafters import DrafterConfig, parse_drafter
from specdec_core.config.dtype import DType
from specdec_core.config.evaluation import EvaluationMode, EvaluationRequest, Prefill
from specdec_core.config.model_drafters import LayerSkip
from specdec_core.config.sampling import parse_sampling
from specdec_core.config.settings import Settings
from specdec_core.data.records import Suite
from specdec_core.data.suites import load_suite
from specdec_core.data.templates import get_template
from specdec_core.models.files import tokenizer_identity
from specdec_core.provenance import code_version
from specdec_core.skip import SkipConfig
from tasks.drafter_data import drafter_data
from tasks.runtime import checkpoint_config, resolve_device, resolve_dtype

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """What is known of a target without loading its weights."""

    reference: str
    identity: str
    kind: Literal["base", "chat"]
    architecture: str
    num_layers: int
    dtype: DType
    device: str
    license_note: str = ""
    tokenizer_identity: str = ""


@dataclass(frozen=True, slots=True)
class Workload:
    """A target and the suite it is asked about, with how prompts are written."""

    target: TargetInfo
    suite: Suite
    template_hash: str
    code_version: str
    settings: Settings = field(default_factory=Settings, compare=False)
    _drafter_data: dict[DrafterConfig, str] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def request(
        self,
        *,
        skip: str,
        drafter: str | DrafterConfig,
        item_ids: Sequence[str],
        max_new_tokens: int,
        batch_size: int = 1,
        is_timed: bool = False,
        mode: EvaluationMode = "decode",
        repetition: str = "",
        sampling: str = "",
        prefill: Prefill = "sparse",
    ) -> EvaluationRequest:
        """Return the request for one evaluation of this workload.

        Raises:
            ConfigError: if what the drafter reads cannot be used with this target.
        """
        drafter = parse_drafter(drafter) if isinstance(drafter, str) else drafter
        if isinstance(drafter, LayerSkip):
            drafted = SkipConfig.parse(skip).union(SkipConfig.parse(drafter.skip))
            drafted.validate(self.target.num_layers)
        return EvaluationRequest(
            target=self.target.reference,
            target_identity=self.target.identity,
            dtype=self.target.dtype,
            device=self.target.device,
            kernels=self.settings.kernels,
            skip=skip,
            prefill=prefill,
            drafter=drafter,
            drafter_data=self._data_of(drafter),
            sampling=parse_sampling(sampling),
            suite=self.suite.source,
            suite_hash=self.suite.content_hash,
            domain=self.suite.domain,
            template_hash=self.template_hash,
            item_ids=tuple(item_ids),
            max_new_tokens=max_new_tokens,
            batch_size=batch_size,
            is_timed=is_timed,
            mode=mode,
            repetition=repetition,
            code_version=self.code_version,
        )

    def _data_of(self, drafter: DrafterConfig) -> str:
        """Return the hash of what a drafter reads, looked at once."""
        if drafter not in self._drafter_data:
            self._drafter_data[drafter] = drafter_data(
                drafter,
                self.suite,
                target=self.target.reference,
                tokenizer_identity=self.target.tokenizer_identity,
                settings=self.settings,
            )
        return self._drafter_data[drafter]

    def register(self, store: Store) -> None:
        """Make target and suite known to the store."""
        target, suite = self.target, self.suite
        store.targets.put(
            TargetRecord(
                identity=target.identity,
                reference=target.reference,
                kind=target.kind,
                architecture=target.architecture,
                num_layers=target.num_layers,
                license_note=target.license_note,
            )
        )
        store.suites.put(
            SuiteRecord(
                content_hash=suite.content_hash,
                name=suite.name,
                domain=suite.domain,
                source=suite.source,
                num_items=len(suite.items),
            )
        )


Preparer = Callable[[str, str, str | None, str, Settings], Workload]
"""Target reference, domain, suite, dtype and settings to a workload; see `prepare`."""


def prepare(
    target: str, domain: str, suite: str | None, dtype: str, settings: Settings
) -> Workload:
    """Return the workload of a target and a domain, without reading weights into memory.

    Args:
        target: Model reference.
        domain: Task domain.
        suite: Where the suite is, see `load_suite`; None searches.
        dtype: Floating point type; ``auto`` takes that of the settings, then the checkpoint's.
        settings: Data and cache folders, device, default type.

    Raises:
        ConfigError: if target, domain, suite or type cannot be used; says what to do.
    """
    loaded = load_suite(domain, suite, settings.data)  # cheapest check first
    return workload_of(prepare_target(target, settings, dtype), loaded, settings)


def workload_of(target: TargetInfo, suite: Suite, settings: Settings) -> Workload:
    """Return the workload of a target that is known and a suite that is loaded."""
    template = get_template(suite.domain, target.kind)
    return Workload(target, suite, template.hash, code_version(), settings)


def prepare_target(target: str, settings: Settings, dtype: str = "auto") -> TargetInfo:
    """Return what is known of a target without loading it; a packaged one is converted once.

    Raises:
        ConfigError: if the reference, the checkpoint or the type cannot be used.
    """
    from specdec_core.models.reference import resolve_model

    resolved = resolve_model(target, settings.cache_dir, logger.info)
    config = checkpoint_config(resolved.folder)
    num_layers = config.get("num_hidden_layers")
    if num_layers is None:
        # The checkpoint relies on a default that only the library's configuration knows.
        from specdec_core.models.architecture import read_architecture

        num_layers = read_architecture(resolved.folder)[0].num_layers
    device = resolve_device(settings.device)
    chosen = settings.dtype if dtype == "auto" else dtype
    return TargetInfo(
        reference=resolved.reference,
        identity=resolved.identity,
        kind=resolved.kind,
        architecture=str(config.get("model_type", "")),
        num_layers=num_layers,
        dtype=resolve_dtype(chosen, resolved.folder, device),
        device=device,
        license_note=resolved.licence,
        tokenizer_identity=tokenizer_identity(resolved.folder, settings.cache_dir),
    )


def selection_mode(drafter: DrafterConfig) -> Literal["replay", "decode"]:
    """Return how acceptance on selection items is measured.

    A drafter that learns from committed tokens alone is replayed on plainly decoded output,
    which is exact and lets requests be batched; others must run in the loop.
    """
    return "replay" if drafter.is_replayable else "decode"


def selection_batch_size(drafter: DrafterConfig, batch_size: int) -> int:
    """Return the batch size on selection items: 1 where memory would depend on the batch."""
    is_decoded = selection_mode(drafter) == "decode"
    return 1 if is_decoded and drafter_scope(drafter) == "run" else batch_size


def drafter_scope(drafter: DrafterConfig) -> str:
    """Return what the drafter remembers: ``prompt`` or ``run``."""
    return str(getattr(drafter, "state_scope", "prompt"))
