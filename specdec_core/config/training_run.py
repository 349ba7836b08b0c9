"""A training from data to export, and a comparison of losses: flat parameters, named presets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from specdec_core.config.base import FiniteRecord
from specdec_core.config.build import build_config
from specdec_core.config.draft_data import DataConfig
from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.losses import (
    LossOptions,
    canonical_losses,
    join_losses,
    loss_names,
    split_losses,
    unread_options,
)
from specdec_core.config.training import TrainConfig, parse_draft, share_epochs
from specdec_core.config.training_given import check_given, check_taken_over
from specdec_core.errors import ConfigError

TrainingPreset = Literal["kl", "eal", "wtv", "wtv-grpo", "eal-grpo", "compare-losses"]


def _split(value: Any) -> Any:
    """Take several values as they are, or as text separated by commas."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, list | tuple):
        return tuple(
            part
            for each in value
            for part in (each.split(",") if isinstance(each, str) else (each,))
        )
    return (value,)


def _split_or_none(value: Any) -> Any:
    return None if value is None else _split(value)


class TrainingRunConfig(FiniteRecord):
    """One training, its evaluation in the decode loop, and what it is exported as."""

    train: TrainConfig = Field(default_factory=TrainConfig)
    evaluation: DraftEvaluationConfig = Field(default_factory=DraftEvaluationConfig)
    sweep_trials: int = Field(
        0,
        ge=0,
        le=1000,
        description="trainings that seek learning rate and loss weight before the one that counts, "
        "by Optuna; 0 takes those given",
    )
    sweep_epochs: int | None = Field(None, ge=1, description="of each of them; default all")
    sweep_rates: Annotated[tuple[float, float], BeforeValidator(_split)] = Field(
        (1e-5, 1e-2), description="lowest and highest peak rate tried"
    )
    sweep_weights: Annotated[tuple[float, float] | None, BeforeValidator(_split_or_none)] = Field(
        None,
        description="lowest and highest weight tried of the last loss, as they are stored, in the "
        "last phase that adds losses up; default as given",
    )
    evaluate: bool = Field(
        True, description="whether the draft decodes; without, it stays a candidate"
    )
    export: bool = Field(
        True, description="whether a validated draft is written in the layouts of serving systems"
    )


class LossComparisonConfig(FiniteRecord):
    """The same draft trained under several losses, with several seeds.

    Source: EAL (arXiv 2609.24150), results: means over seeds, quartiles.
    """

    base: TrainingRunConfig = Field(default_factory=TrainingRunConfig)
    losses: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        min_length=1,
        description="losses, the first one is what others are compared with; phases are joined "
        "by /, as in wtv/wtv+0.1grpo",
    )
    seeds: Annotated[tuple[int, ...], BeforeValidator(_split)] = Field(
        (0,), min_length=1, description="one training each"
    )
    learning_rates: Annotated[tuple[float, ...], BeforeValidator(_split)] = Field(
        (), description="peaks tried per loss with the first seed; the best on validation is taken"
    )
    compare_start: bool = Field(
        False,
        description="whether the draft before training decodes too and is compared with every loss",
    )

    @field_validator("losses")
    @classmethod
    def _canonical_losses(cls, losses: tuple[str, ...]) -> tuple[str, ...]:
        return _once("losses", tuple(map(canonical_losses, losses)))

    @field_validator("seeds", "learning_rates")
    @classmethod
    def _different(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return _once("values", values)

    @model_validator(mode="after")
    def _start_can_decode(self) -> LossComparisonConfig:
        if self.compare_start and not self.base.evaluate:
            raise ValueError(
                "compare_start decodes with the draft before training, but evaluate is off: leave "
                "one of both out"
            )
        return self

    @model_validator(mode="after")
    def _can_be_trained(self) -> LossComparisonConfig:
        for _ in self.variants():
            pass
        return self

    def variants(self) -> Iterator[TrainingRunConfig]:
        """Yield every training that may be done, loss by loss."""
        rates = self.learning_rates or (None,)
        for loss, seed, rate in product(self.losses, self.seeds, rates):
            yield self.variant(loss, seed, rate)

    def variant(self, loss: str, seed: int, rate: float | None = None) -> TrainingRunConfig:
        """Return the training under one loss, with a learning rate if that is not as in `base`.

        Options that this loss does not read are as by default, as they are in a training alone.

        Raises:
            ConfigError: for a value outside its range.
        """
        base = self.base.train
        first, second = split_losses(loss)
        unread = unread_options(base, loss_names(loss))
        given = {name: getattr(base, name) for name in base.model_fields_set - set(unread)}
        changes: dict[str, Any] = {"loss": first, "second_loss": second, "seed": seed}
        if rate is not None:
            changes["learning_rate"] = rate
        train = share_epochs(build_config(TrainConfig, {**given, **changes}))
        return self.base.model_copy(update={"train": train})


def _once(what: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError(f"{what} {', '.join(map(str, values))}: give each once")
    return values


def losses_of(config: TrainConfig) -> str:
    """Return the losses of a training in one text."""
    return join_losses(config.loss, config.second_loss)


# Fields of the evaluation that follow from the training.
_FOLLOWING = frozenset({"target", "dtype", "gamma"})
DRAFT_HELP = "pruned, model, eagle or medusa, with options as in pruned:num_layers=5"


def _flat() -> dict[str, tuple[str, ...]]:
    shared = tuple(LossOptions.model_fields)
    apart = {"data", "draft", *shared}
    own = [*(name for name in TrainConfig.model_fields if name not in apart), *shared]
    flat: dict[str, tuple[str, ...]] = {name: ("train", name) for name in ("draft", *own)}
    for name in DataConfig.model_fields:
        flat[f"data_{name}" if name in own else name] = ("train", "data", name)
    for name in DraftEvaluationConfig.model_fields:
        if name not in _FOLLOWING:
            flat[f"eval_{name}"] = ("evaluation", name)
    parts = {"train", "evaluation"}
    return flat | {name: (name,) for name in TrainingRunConfig.model_fields if name not in parts}


FLAT: Mapping[str, tuple[str, ...]] = MappingProxyType(_flat())
"""Names of flags and flow parameters, and where each belongs in a `TrainingRunConfig`."""
COMPARED = ("losses", "seeds", "learning_rates", "compare_start")
"""Those that make a comparison of a training."""

_EAL, _WTV = "kl+0.1eal", "wtv"
PAPER_LOSSES = (
    *("kl", "ce", "lk", "kl+tv", _EAL, _WTV),
    f"{_EAL}/{_EAL}+0.1grpo",
    f"{_WTV}/{_WTV}+0.1grpo",
)
"""The rows of EAL's tables; the divergence first, which the paper compares with."""

PRESETS: Mapping[TrainingPreset, Mapping[str, Any]] = MappingProxyType(
    {
        "kl": {"loss": "kl"},
        "eal": {"loss": _EAL},
        # Responses are sampled as outputs are where the overlap of distributions decides.
        "wtv": {"loss": _WTV, "data_temperature": 1.0},
        # 3 and 3 epochs, as the 6 of the others.
        "wtv-grpo": {"loss": _WTV, "second_loss": f"{_WTV}+0.1grpo", "data_temperature": 1.0},
        "eal-grpo": {"loss": _EAL, "second_loss": f"{_EAL}+0.1grpo"},
        "compare-losses": {"losses": PAPER_LOSSES, "seeds": (0, 1, 2)},
    }
)


def field_of(name: str) -> tuple[type[BaseModel], str]:
    """Return the record that has a flat parameter, and the name of its field there."""
    *parents, field = FLAT[name]
    record: type[BaseModel] = TrainingRunConfig
    for parent in parents:
        annotation = record.model_fields[parent].annotation
        assert isinstance(annotation, type)
        record = annotation
    return record, field


def training_config(
    preset: str | None, given: Mapping[str, Any]
) -> TrainingRunConfig | LossComparisonConfig:
    """Return the training of a preset and of flat parameters that are not None.

    It is a comparison if losses, seeds or learning rates are named, or the start is to be compared.

    Raises:
        ConfigError: for an unknown preset or parameter, or a value outside its range.
    """
    if preset is not None and preset not in PRESETS:
        known = ", ".join(get_args(TrainingPreset))
        raise ConfigError(f"preset {preset!r} is unknown: choose one of {known}")
    chosen = {name: value for name, value in given.items() if value is not None}
    unknown = sorted(chosen.keys() - FLAT.keys() - set(COMPARED))
    if unknown:
        raise ConfigError(f"parameter {unknown[0]!r} is unknown: `specdec train --help` lists all")
    defaults = dict(PRESETS[preset]) if preset is not None else {}  # type: ignore[index]  # checked
    if "losses" in chosen:
        defaults = {name: v for name, v in defaults.items() if name not in {"loss", "second_loss"}}
    elif chosen.keys() & {"loss", "second_loss"}:
        defaults = {name: v for name, v in defaults.items() if name not in {"second_loss"}}
    values = {**defaults, **chosen}
    check_taken_over(chosen, values, preset)
    compared = {name: values.pop(name) for name in COMPARED if name in values}
    run = _nested(values)
    losses = tuple(map(canonical_losses, _split(compared.get("losses", losses_of(run.train)))))
    check_given(chosen, run, losses)
    if compared.keys() <= {"compare_start"} and not compared.get("compare_start"):
        return run
    if run.sweep_trials:
        raise ConfigError(
            "a comparison tries its learning_rates under every loss alike: leave sweep_trials out"
        )
    seeds = {"seeds": (run.train.seed,)}  # the one that was given, where there are no several
    return build_config(LossComparisonConfig, {"base": run, **seeds, **compared, "losses": losses})


def _nested(values: Mapping[str, Any]) -> TrainingRunConfig:
    tree: dict[str, Any] = {"train": {"data": {}}, "evaluation": {}}
    for name, value in values.items():
        *parents, field = FLAT[name]
        place = tree
        for parent in parents:
            place = place[parent]
        is_draft_text = name == "draft" and isinstance(value, str)
        place[field] = parse_draft(value) if is_draft_text else value
    run = build_config(TrainingRunConfig, {}, tree)
    following = {"target": run.train.data.target, "dtype": run.train.data.dtype}
    evaluation = run.evaluation.model_copy(update={**following, "gamma": run.train.window})
    return run.model_copy(update={"train": share_epochs(run.train), "evaluation": evaluation})
