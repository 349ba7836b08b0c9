"""Parameters of draft training: flat, with ranges, the same for flow, command line and store."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from specdec_core.config.base import FiniteRecord, Seed
from specdec_core.config.draft_data import DataConfig, Layers
from specdec_core.config.losses import LossConfig, LossOptions, format_loss, parse_loss
from specdec_core.errors import ConfigError

Precision = Literal["auto", "float32", "bfloat16"]
DraftKind = Literal["pruned", "model", "eagle", "medusa"]
Criterion = Literal["greedy", "sampling"]
"""Acceptance of the likeliest token, or of a drawn one."""


def _number(value: object) -> object:
    """Take a number that stands in text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class PrunedDraft(FiniteRecord):
    """A draft cut from the target: some of its blocks, its embedding and head.

    Its vocabulary may be narrowed to the ids that the training responses use most.
    """

    kind: Literal["pruned"] = "pruned"
    layers: Layers = Field((), description="blocks kept, 0-based, such as 0/7/15/22/29")
    num_layers: int = Field(
        5, ge=1, le=512, description="blocks kept, the first ones; unless layers"
    )
    vocab_size: int | None = Field(
        None, ge=16, description="ids kept, by frequency in the training responses; default all"
    )


class ModelDraft(FiniteRecord):
    """A smaller causal language model with the target's vocabulary."""

    kind: Literal["model"] = "model"
    model: str = Field(min_length=1, description="model reference")


class EagleDraft(FiniteRecord):
    """A one-block head on the target's hidden states.

    Source: EAGLE (1: final features), EAGLE-3 (3: features of three depths, training-time test).
    """

    kind: Literal["eagle"] = "eagle"
    version: Annotated[Literal[1, 3], BeforeValidator(_number)] = 1
    num_steps: int = Field(
        7, ge=1, le=16, description="version 3: steps unrolled on its own outputs"
    )
    vocab_size: int | None = Field(None, ge=16, description="version 3: ids of its head")
    regression_weight: float = Field(
        1.0, ge=0.0, description="version 1: weight of the distance to the target's features"
    )
    feature_noise: float = Field(0.2, ge=0.0, description="version 1: uniform noise, half width")

    @model_validator(mode="after")
    def _has_a_head_to_narrow(self) -> EagleDraft:
        if self.version == 1 and self.vocab_size is not None:
            raise ValueError(
                f"vocab_size={self.vocab_size} was given, but version 1 drafts with the target's "
                "own head: leave vocab_size out or use version=3"
            )
        return self

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> EagleDraft:
        other = 4 - self.version
        for name in _OF_VERSION[other]:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(
                    f"{name}={value} was given, but version {self.version} has no use for it: "
                    f"leave {name} out or use version={other}"
                )
        return self


_OF_VERSION = {1: ("regression_weight", "feature_noise"), 3: ("num_steps",)}
"""Options that one version of EAGLE alone reads."""


class MedusaDraft(FiniteRecord):
    """Heads that predict further tokens from the target's last hidden state (Medusa-1)."""

    kind: Literal["medusa"] = "medusa"
    num_heads: int = Field(4, ge=1, le=16)
    num_blocks: int = Field(1, ge=1, le=8, description="residual blocks per head")


DraftShape = Annotated[
    PrunedDraft | ModelDraft | EagleDraft | MedusaDraft, Field(discriminator="kind")
]
_SHAPE: TypeAdapter[DraftShape] = TypeAdapter(DraftShape)


def most_drafted(shape: DraftShape) -> int | None:
    """Return the most tokens that a draft proposes in one path; None where nothing limits it.

    Every head of Medusa names one token behind the newest one, the first head the next, so that
    there is nothing behind the last. EAGLE and models go on from their own tokens.

    Source: Medusa (Cai et al. 2024), section 2.1.
    """
    return shape.num_heads if isinstance(shape, MedusaDraft) else None


def num_depths(shape: DraftShape) -> int:
    """Return how many draft depths a training of this draft has losses at."""
    if isinstance(shape, MedusaDraft):
        return shape.num_heads
    return shape.num_steps if isinstance(shape, EagleDraft) and shape.version == 3 else 1


def _usual_rate(values: dict[str, Any]) -> float:
    return 1e-4 if isinstance(values["draft"], ModelDraft) else 1e-3


# What changes where a training runs or when it is given up, and not what it makes.
_INCIDENTAL = {"num_workers", "sharding", "max_failures"}


class TrainConfig(LossOptions):
    """One training of one draft as the user asks for it.

    Source: EAL (arXiv 2609.24150), training set-up: AdamW, cosine schedule, 6 epochs or 3 and 3
    with GRPO; rates, warm-up, clipping norm and batch are ours. The paper's rate of 1e-5 is for
    models of 0.6 to 4 thousand million weights on 60,000 prompts.
    """

    data: DataConfig = Field(default_factory=DataConfig)
    draft: DraftShape = Field(default_factory=PrunedDraft)
    loss: str = Field("kl", description="weighted sum such as kl+0.1eal, wtv or lk-lambda")
    second_loss: str | None = Field(
        None, description="loss of a second phase, such as wtv+0.1grpo; its start is the reference"
    )
    num_epochs: int = Field(6, ge=1, le=1000, description="passes over the data, both phases")
    second_epochs: int = Field(
        3,
        ge=1,
        description="those of the second phase, if there is one; half of all if there are 3 or "
        "fewer and this is not given",
    )
    learning_rate: float = Field(
        default_factory=_usual_rate,
        gt=0.0,
        le=1.0,
        description="peak; default 1e-3 for drafts that begin untrained (pruned, eagle, medusa), "
        "1e-4 for a model",
    )
    warmup: float = Field(0.03, ge=0.0, lt=1.0, description="share of steps with a rising rate")
    weight_decay: float = Field(0.0, ge=0.0)
    clip_norm: float = Field(1.0, gt=0.0)
    batch_size: int = Field(16, ge=1, description="sequences per step, over all workers")
    micro_batch_tokens: int = Field(4096, ge=16, description="padded tokens per forward")
    precision: Precision = Field(
        "auto",
        description="type of products, by autocast; auto is bfloat16 where the target computed the "
        "data in it, else float32; master weights are float32",
    )
    num_validation: int = Field(64, ge=2, description="prompts held out for validation")
    validate_every: int = Field(50, ge=1, description="steps between validations and checkpoints")
    select_by: Criterion | Literal["auto"] = Field(
        "auto",
        description="expected acceptance that chooses the best checkpoint; auto is that of "
        "sampling for losses with tv, wtv or lk, else the greedy one",
    )
    num_workers: int = Field(1, ge=1, le=1024, description="processes that train together")
    sharding: Literal["ddp", "fsdp"] = Field("ddp", description="how workers share the model")
    max_failures: int = Field(
        2, ge=0, le=100, description="lost workers after which a training is given up"
    )
    seed: Seed = 0

    @field_validator("loss", "second_loss")
    @classmethod
    def _canonical_loss(cls, text: str | None) -> str | None:
        return format_loss(parse_loss(text)) if text is not None else None

    @property
    def window(self) -> int:
        """Window of losses, validation and evaluation, tokens: `gamma`, or all that is drafted."""
        most = most_drafted(self.draft)
        return self.gamma if most is None else min(self.gamma, most)

    @property
    def loss_configs(self) -> tuple[LossConfig, ...]:
        """What the first phase minimises, and the second if there is one."""
        shared = {name: getattr(self, name) for name in LossOptions.model_fields}
        shared["gamma"] = self.window
        texts = (self.loss, self.second_loss)
        return tuple(LossConfig(terms=parse_loss(t), **shared) for t in texts if t is not None)

    def content(self) -> dict[str, Any]:
        """Return what decides the result, for content keys; data have a key of their own."""
        unread = {"second_epochs"} if self.second_loss is None else set()
        found = self.model_dump(mode="json", exclude={"data", *_INCIDENTAL, *unread})
        return {**found, "gamma": self.window}


def share_epochs(train: TrainConfig) -> TrainConfig:
    """Return the training with half of its epochs in a second phase that by default has them all.

    What was said of the second phase stays.
    """
    is_default = "second_epochs" not in train.model_fields_set
    is_whole = train.second_loss is not None and train.second_epochs >= train.num_epochs
    if not (is_default and is_whole and train.num_epochs > 1):
        return train
    return train.model_copy(update={"second_epochs": train.num_epochs // 2})


def parse_draft(text: str) -> DraftShape:
    """Return the draft written as ``kind`` or ``kind:option=value,option=value``.

    Raises:
        ConfigError: for an unknown kind or option, one that is given twice or has no value, or a
            value outside its range.
    """
    kind, _, rest = text.strip().partition(":")
    options: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        name, equals, value = part.partition("=")
        if not equals or name in options:
            raise ConfigError(
                f"draft option {part!r} in {text!r} is not understood: write option=value once, "
                "lists with slashes as in layers=0/7/15"
            )
        options[name] = value
    if {"layers", "num_layers"} <= options.keys():
        raise ConfigError(
            f"draft {text!r} names blocks and says how many too: give layers or num_layers"
        )
    try:
        return _SHAPE.validate_python({"kind": kind, **options})
    except ValidationError as error:
        problems = "; ".join(f"{e['loc']}: {e['msg']}" for e in error.errors())
        raise ConfigError(
            f"draft {text!r} is not valid: {problems}; kinds are {', '.join(get_args(DraftKind))}"
        ) from error


def format_draft(shape: DraftShape) -> str:
    """Return the text that `parse_draft` reads back: the kind, and options that are not default."""
    options = {
        name: value
        for name, field in type(shape).model_fields.items()
        if name != "kind" and (value := getattr(shape, name)) != field.default
    }
    if not options:
        return shape.kind
    texts = (
        f"{name}={'/'.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in options.items()
    )
    return f"{shape.kind}:{','.join(texts)}"
