"""What training data a configuration asks for: prompts, identity, folder and size, before work."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_core.config.draft_data import DataConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, DataError
from specdec_core.models.architecture import Architecture, read_architecture
from specdec_core.models.files import tokenizer_identity
from specdec_core.models.loading import load_tokenizer
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.taps import check_taps
from specdec_core.provenance import data_code_version
from specdec_core.training.manifest import (
    MANIFEST,
    SHARD_PROMPTS,
    DataManifest,
    data_key,
    estimate_bytes,
    read_manifest,
    sample_name,
    shard_path,
    write_manifest,
)
from specdec_core.training.masks import ask, mask_conversation, serving_hash
from specdec_core.training.prompts import Drawn, Prompt, draw_prompts
from tasks.draft_data_jobs import ShardRequest
from tasks.run_files import make_folder
from tasks.runtime import LogLine, resolve_device, resolve_dtype

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_GIB = 2**30
# Left free beside the data, so that logs and databases can still be written.
_RESERVE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class DataPlan:
    """Training data that is to be made.

    Attributes:
        manifest: What it will say of itself, counts left out.
        prompts: In the order of the shards.
        estimated_bytes: Of all shards if every response is as long as it may be.
    """

    manifest: DataManifest
    prompts: tuple[Prompt, ...]
    estimated_bytes: int

    def request(self, index: int, folder: Path) -> ShardRequest:
        """Return the job that makes shard `index`."""
        manifest = self.manifest
        start = index * SHARD_PROMPTS
        return ShardRequest(
            data_key=manifest.key,
            index=index,
            folder=str(folder),
            config=manifest.config,
            target=manifest.target,
            target_identity=manifest.target_identity,
            dtype=manifest.dtype,
            device=manifest.device,
            kernels=manifest.kernels,
            prompts=self.prompts[start : start + SHARD_PROMPTS],
        )


def plan_data(config: DataConfig, settings: Settings, log: LogLine) -> DataPlan:
    """Return what `config` asks for; the target's weights are not loaded.

    Raises:
        ConfigError: if prompts, target or options cannot be used.
    """
    if config.hidden == "taps" and not config.taps:
        raise ConfigError(
            "hidden=taps stores further hidden states, but taps names none: name some, such as "
            "taps=2/15/27, or say hidden=head-input"
        )
    model = resolve_model(config.target, settings.cache_dir, log)
    arch = read_architecture(model.folder)[0]
    check_taps(config.taps, arch.num_layers)
    if config.top_k > arch.vocab_size:
        raise ConfigError(
            f"top_k {config.top_k} asks for more logits per token than {model.reference} has "
            f"({arch.vocab_size}): lower it"
        )
    _check_answers(config, model)
    device = resolve_device(settings.device)
    dtype = resolve_dtype(config.dtype, model.folder, device)
    tokenizer = load_tokenizer(model.folder)
    chooser = _Chooser(config, model, arch, tokenizer)
    drawn = draw_prompts(
        config.prompts,
        config.num_prompts,
        max_turns=config.max_turns,
        seed=config.seed,
        data_dir=settings.data,
        why_not=chooser.why_not,
    )
    _say(drawn, config, log)
    _check_names(drawn.prompts)
    domains = {prompt.domain for prompt in drawn.prompts}
    manifest = DataManifest(
        key="",
        config=config,
        target=model.reference,
        target_identity=model.identity,
        dtype=dtype,
        device=device,
        kernels=settings.kernels,
        tokenizer_identity=tokenizer_identity(model.folder, settings.cache_dir),
        template_hash=serving_hash(tokenizer, model.kind, domains),
        domains=tuple(sorted(domains)),
        code_version=data_code_version(),
        hidden_size=arch.hidden_size,
        vocab_size=arch.vocab_size,
        num_prompts=len(drawn.prompts),
        prompt_ids=tuple(prompt.id for prompt in drawn.prompts),
        prompts_hash=drawn.content_hash,
        dropped=drawn.dropped,
    )
    manifest = manifest.model_copy(update={"key": data_key(manifest)})
    return DataPlan(manifest, drawn.prompts, chooser.estimate(drawn))


class _Chooser:
    """Says which prompts can be used, and remembers how long they are."""

    def __init__(
        self,
        config: DataConfig,
        model: ResolvedModel,
        arch: Architecture,
        tokenizer: PreTrainedTokenizerBase,
    ) -> None:
        self._config, self._kind, self._hidden = config, model.kind, arch.hidden_size
        self._tokenizer = tokenizer
        own = tokenizer.eos_token_id
        self._stop_ids = arch.eos_ids | ({own} if own is not None else set())
        self._most = min(config.max_tokens, arch.max_positions)
        self._lengths: dict[str, tuple[int, int]] = {}

    def why_not(self, prompt: Prompt) -> str | None:
        """Return why a prompt cannot be used, or None."""
        if prompt.is_finished:
            try:
                found = mask_conversation(
                    self._tokenizer, prompt.messages, self._stop_ids, name=prompt.id
                )
            except DataError:
                return "no exact mask"
            length, start = len(found.token_ids), found.spans[0][0]
            fits, responses = start < self._most, sum(b - a for a, b in found.spans)
        else:
            start = len(ask(self._tokenizer, self._kind, prompt).token_ids)
            length, responses = start + self._config.max_new_tokens, self._config.max_new_tokens
            fits = length <= self._most
        if not fits:
            return "too long"
        self._lengths[prompt.id] = min(length, self._most), responses
        return None

    def estimate(self, drawn: Drawn) -> int:
        """Return the bytes of all shards if every response is as long as it may be.

        Later turns count with the longest sequence allowed: they hold all that was said before.
        """
        lengths = [self._lengths[prompt.id] for prompt in drawn.prompts]
        num_later = sum(len(prompt.later_turns) for prompt in drawn.prompts)
        num_tokens = sum(length for length, _ in lengths) + num_later * self._most
        num_responses = sum(own for _, own in lengths) + num_later * self._config.max_new_tokens
        return estimate_bytes(
            len(lengths) + num_later,
            num_tokens,
            num_responses,
            config=self._config,
            hidden_size=self._hidden,
        )


def check_held_out(plan: DataPlan, num_validation: int) -> None:
    """Check that prompts are left to train on; the files may have fewer than were asked for.

    Args:
        plan: Of the data.
        num_validation: Prompts that a training will hold out.

    Raises:
        ConfigError: if none are left.
    """
    manifest = plan.manifest
    if num_validation >= manifest.num_prompts:
        raise ConfigError(
            f"num_validation {num_validation} holds out all of the {manifest.num_prompts} prompts "
            f"that the files have ({manifest.config.num_prompts} were asked for): lower "
            "num_validation or give more prompts"
        )


def open_folder(plan: DataPlan, folder: Path) -> DataManifest:
    """Return the manifest in `folder`, written there if the folder is new.

    Raises:
        ConfigError: if it holds other data, an old format, or something else.
    """
    if (folder / MANIFEST).exists():
        found = read_manifest(folder)
        if found.key != plan.manifest.key:
            raise ConfigError(
                f"{folder} holds training data {found.key[:12]}, but {plan.manifest.key[:12]} is "
                f"asked for ({_differences(found, plan.manifest)}): name another folder, or "
                f"'rm -r {folder}' and run again"
            )
        return found
    # One that a kill left half written is nobody's.
    for part in folder.glob(f".{MANIFEST}.*"):
        part.unlink(missing_ok=True)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} holds files but no training data: name a folder that is new or empty"
        )
    make_folder(folder)
    write_manifest(folder, plan.manifest)
    return plan.manifest


def check_disk(plan: DataPlan, folder: Path, missing: list[int]) -> int:
    """Return how many bytes the missing shards take at most, having checked that they fit.

    Raises:
        ConfigError: if the disk is too small; says how small, and what to do.
    """
    needed = int(plan.estimated_bytes * len(missing) / plan.manifest.num_shards)
    free = shutil.disk_usage(folder).free
    if needed + _RESERVE_BYTES > free:
        raise ConfigError(
            f"{len(missing)} shards of training data take up to {needed / _GIB:.2f} GiB and "
            f"{_RESERVE_BYTES / _GIB:.2f} GiB must stay free, but {folder} has "
            f"{free / _GIB:.2f} GiB: say hidden=none (states are computed while training), store "
            "fewer taps, lower num_prompts or max_new_tokens, or name a folder on a larger disk"
        )
    return needed


def missing_shards(manifest: DataManifest, folder: Path) -> list[int]:
    """Return the numbers of the shards that are not there."""
    return [i for i in range(manifest.num_shards) if not shard_path(folder, i).exists()]


def _check_answers(config: DataConfig, model: ResolvedModel) -> None:
    if model.kind == "base" and config.max_turns > 1:
        raise ConfigError(
            f"{model.reference} has no chat template, so it cannot answer {config.max_turns} turns "
            "of a conversation: say max_turns=1, or choose a chat model"
        )


def _check_names(prompts: Sequence[Prompt]) -> None:
    """Check that no sample of a later turn has the name of another prompt."""
    ids = {prompt.id for prompt in prompts}
    for prompt in prompts:
        for turn in range(1, len(prompt.later_turns) + 1):
            name = sample_name(prompt.id, turn)
            if name in ids:
                raise ConfigError(
                    f"prompt {name!r} has the name that turn {turn} of prompt {prompt.id!r} gets: "
                    "give it another id, or say max_turns=1"
                )


def _say(drawn: Drawn, config: DataConfig, log: LogLine) -> None:
    dropped = ", ".join(f"{num} {reason}" for reason, num in drawn.dropped.items()) or "none"
    log(f"{len(drawn.prompts)} prompts drawn; left out: {dropped}")
    if len(drawn.prompts) < config.num_prompts:
        log(f"{config.num_prompts} prompts were asked for, but the files have no more")


def _differences(found: DataManifest, wanted: DataManifest) -> str:
    """Return which inputs differ, in words."""
    mine, other = found.model_dump(), wanted.model_dump()
    left_out = {"key", "counts", "prompt_ids", "dropped", "target"}
    names = [name for name in mine if name not in left_out and mine[name] != other[name]]
    return f"{', '.join(names)} differ" if names else "something differs"
