"""A tiny draft, random responses in memory and a random target head, for tests of training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig, parse_loss
from specdec_core.config.training import TrainConfig
from specdec_core.models.loading import torch_dtype
from specdec_core.models.tiny import tiny_library_model
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.checkpoints import CheckpointFolder
from specdec_core.training.draft import Head
from specdec_core.training.draft_model import DraftModel
from specdec_core.training.objective import Objective
from specdec_core.training.outcome import StepMetrics, ValidationMetrics
from specdec_core.training.packing import BatchPlan, pack, share_of
from specdec_core.training.plan import TrainingPlan
from specdec_core.training.trainer import Trainer, TrainingParts
from specdec_core.training.workers import Workers

VOCAB, HIDDEN, GAMMA = 32, 8, 3


@dataclass(frozen=True)
class Sample:
    """Tokens, how many of them are the prompt, and the target's hidden states."""

    token_ids: Tensor
    num_prompt: int
    hidden: Tensor


def make_samples(
    num: int, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> dict[str, Sample]:
    """Return samples of 8 to 20 tokens by name."""
    generator = torch.Generator().manual_seed(seed)
    samples = {}
    for index in range(num):
        length = 8 + int(torch.randint(13, (), generator=generator))
        ids = torch.randint(VOCAB, (length,), generator=generator)
        hidden = torch.randn(length, HIDDEN, generator=generator, dtype=torch.float64)
        samples[f"s{index:03d}"] = Sample(ids, 2 + index % 3, hidden.to(dtype))
    return samples


def moved(batch: TrainingBatch, device: str) -> TrainingBatch:
    """Return a batch on another device."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    tensors = {name: v.to(device) for name, v in values.items() if isinstance(v, Tensor)}
    return replace(batch, **tensors)


def make_batch(samples: Mapping[str, Sample], names: Iterable[str]) -> TrainingBatch:
    """Return samples as one padded batch."""
    names = tuple(names)
    chosen = [samples[name] for name in names]
    width = max(len(sample.token_ids) for sample in chosen)
    ids = torch.zeros(len(chosen), width, dtype=torch.int64)
    mask = torch.zeros(len(chosen), width, dtype=torch.bool)
    hidden = torch.zeros(
        len(chosen), width, chosen[0].hidden.shape[1], dtype=chosen[0].hidden.dtype
    )
    for row, sample in enumerate(chosen):
        length = len(sample.token_ids)
        ids[row, :length] = sample.token_ids
        mask[row, sample.num_prompt : length] = True
        hidden[row, :length] = sample.hidden
    lengths = torch.tensor([len(sample.token_ids) for sample in chosen])
    return TrainingBatch(ids, mask, lengths, hidden, None, names)


class MemorySource:
    """Batches of samples in memory, ordered and packed as stored ones are."""

    def __init__(
        self,
        samples: Mapping[str, Sample],
        *,
        num_validation: int = 4,
        batch_size: int = 4,
        micro_batch_tokens: int = 40,
        device: str = "cpu",
    ) -> None:
        names = sorted(samples)
        self.samples, self.device = samples, device
        self.held_out = {name: len(samples[name].token_ids) for name in names[:num_validation]}
        self.limit = micro_batch_tokens
        lengths = {name: len(samples[name].token_ids) for name in names[num_validation:]}
        self.plan = BatchPlan(lengths, batch_size, micro_batch_tokens, seed=0)

    @property
    def steps_per_epoch(self) -> int:
        return self.plan.num_steps

    def micro_batches(
        self, epoch: int, step: int, *, rank: int, num_workers: int
    ) -> list[TrainingBatch]:
        parts = self.plan.micro_batches(epoch, step, rank, num_workers)
        return [self._batch(part) for part in parts]

    def validation_batches(self, *, rank: int, num_workers: int) -> list[TrainingBatch]:
        own = share_of(self.held_out, self.held_out, rank, num_workers)
        return [self._batch(part) for part in pack(own, self.held_out, self.limit)]

    def _batch(self, names: Iterable[str]) -> TrainingBatch:
        return moved(make_batch(self.samples, names), self.device)


def target_head(*, seed: int = 7, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Head:
    """Return a random head of the target."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(VOCAB, HIDDEN, generator=generator, dtype=torch.float64)
    return Head(weight.to(device, dtype))


def objective(
    loss: str = "kl",
    *,
    gamma: int = GAMMA,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    **options: Any,
) -> Objective:
    """Return a loss against the random target."""
    config = LossConfig(terms=parse_loss(loss), gamma=gamma, **options)
    return Objective(config, target_head(dtype=dtype, device=device))


def tiny_draft(folder: Path, *, dtype: str = "float64", **options: Any) -> DraftModel:
    """Return a tiny tied model; `folder` stands for where it was loaded from."""
    model = tiny_library_model(
        "qwen2", dtype=dtype, num_layers=2, attn_implementation="sdpa", **options
    )
    if dtype == "float64":
        _keep_precision(model)
    return DraftModel(model, folder)


def _keep_precision(module: torch.nn.Module) -> None:
    """Replace norms that compute in float32 whatever they are given."""
    for name, child in module.named_children():
        if type(child).__name__.endswith("RMSNorm"):
            weight = child.get_parameter("weight")
            norm = torch.nn.RMSNorm(len(weight), eps=1e-6, dtype=weight.dtype)
            norm.weight = weight
            setattr(module, name, norm)
        else:
            _keep_precision(child)


@dataclass
class Log:
    """Metrics in the order they came."""

    events: list[StepMetrics | ValidationMetrics] = field(default_factory=list)

    def __call__(self, event: StepMetrics | ValidationMetrics) -> None:
        self.events.append(event)

    @property
    def steps(self) -> list[StepMetrics]:
        return [event for event in self.events if isinstance(event, StepMetrics)]

    @property
    def validations(self) -> list[ValidationMetrics]:
        return [event for event in self.events if isinstance(event, ValidationMetrics)]


def config_of(**changes: Any) -> TrainConfig:
    """Return a configuration of few steps, float32 precision meaning no autocast here."""
    usual: dict[str, Any] = {
        "loss": "kl",
        "gamma": GAMMA,
        "num_epochs": 2,
        "second_epochs": 1,
        "learning_rate": 1e-2,
        "warmup": 0.1,
        "precision": "float32",
        "validate_every": 5,
    }
    return TrainConfig(**{**usual, **changes})


def make_trainer(
    folder: Path,
    config: TrainConfig,
    source: Any,
    *,
    draft: Any = None,
    log: Log | None = None,
    workers: Workers | None = None,
    identity: str = "tiny",
    dtype: str = "float64",
    device: str = "cpu",
) -> Trainer:
    """Return a trainer of a tiny draft with checkpoints in `folder`.

    Autocast leaves float64 as it is: where it shall act, `dtype` is float32, as are the samples.
    A draft and a source that are given are on the device already.
    """
    options: dict[str, Any] = {"dtype": torch_dtype(dtype), "device": device}
    if draft is None:
        draft = tiny_draft(folder, dtype=dtype)
        draft.module.to(device)
    texts = [config.loss, *([config.second_loss] if config.second_loss else [])]
    return Trainer(
        TrainingParts(
            plan=TrainingPlan.of(config, source.steps_per_epoch),
            draft=draft,
            objectives=tuple(objective(text, gamma=config.gamma, **options) for text in texts),
            source=source,
            checkpoints=CheckpointFolder(folder / "checkpoints", identity),
            workers=workers or Workers(device=torch.device(device)),
            record=log or Log(),
        )
    )
