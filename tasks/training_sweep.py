"""Short trainings under other learning rates and loss weights, chosen by Optuna."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

import optuna
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState
from pydantic import Field, model_validator

from specdec_core.config.base import Record, Seed
from specdec_core.config.build import build_config
from specdec_core.config.losses import format_loss, parse_loss, split_losses
from specdec_core.config.settings import Settings
from specdec_core.config.training import TrainConfig
from specdec_core.config.training_run import TrainingRunConfig, losses_of
from specdec_core.errors import ConfigError, EvaluationFailedError, StoreError
from specdec_core.hashing import json_hash
from specdec_core.provenance import training_code_version
from specdec_core.randomness import derive_seed
from specdec_core.search.storage import engine_options, without_password
from specdec_core.training.manifest import read_manifest
from specdec_core.training.outcome import TrainingOutcome
from specdec_core.training.plan import TrainingPlan
from tasks.jobs import StopCheck
from tasks.run_files import make_folder
from tasks.runtime import LogLine, patient_lock
from tasks.training import train_draft

logger = logging.getLogger(__name__)

_RATE, _WEIGHT, _KEY = "learning_rate", "loss_weight", "key"

Range = tuple[float, float]


class TrainingSweep(Record):
    """What is varied, on logarithmic scales, and how often."""

    learning_rates: Range = Field(description="lowest and highest peak rate")
    loss_weights: Range | None = Field(
        None, description="lowest and highest weight of the loss named last; None leaves it"
    )
    num_trials: int = Field(ge=1, le=1000)
    num_epochs: int | None = Field(None, ge=1, description="of each trial; None for all")
    seed: Seed = Field(0, description="of the sampler")

    @model_validator(mode="after")
    def _ranges_rise(self) -> TrainingSweep:
        ranges = {"sweep_rates": self.learning_rates, "sweep_weights": self.loss_weights}
        for name, found in ranges.items():
            if found is not None and not 0.0 < found[0] < found[1]:
                raise ValueError(f"{name} {found} is no range: give two rising numbers above 0")
        return self


class SweepTrial(Record):
    """One short training."""

    key: str = Field(description="of its configuration, data and code; names its folder")
    learning_rate: float
    loss: str = Field(description="of both phases, joined by / where there are two")
    status: Literal["complete", "failed"]
    accepted_tokens: float | None = Field(
        None, description="of the best validation, by the training's criterion, without the bonus"
    )
    reason: str | None = None


class SweepOutcome(Record):
    """All trainings of a sweep in the order tried, and the configuration that did best."""

    study: str
    trials: tuple[SweepTrial, ...]
    best: SweepTrial
    config: TrainConfig = Field(description="the whole training with what did best")


TrialDone = Callable[[SweepTrial, TrainingOutcome | None], None]


def sweep_training(
    config: TrainConfig,
    sweep: TrainingSweep,
    settings: Settings,
    data_folder: Path,
    folder: Path,
    *,
    is_inline: bool = False,
    log: LogLine = lambda _line: None,
    done: TrialDone = lambda _trial, _outcome: None,
    should_stop: StopCheck = lambda: False,
) -> SweepOutcome:
    """Train short runs of `config` until there are as many trials as asked for.

    The same call continues: finished trainings count, and one that was interrupted goes on from
    its checkpoint. Trials are recorded in the Optuna storage of the settings. Another process with
    the same sweep is waited for.

    Args:
        config: The training that a rate and a weight are sought for.
        sweep: What is varied.
        settings: As `train_draft`, and the Optuna storage.
        data_folder: As `train_draft`.
        folder: Of the sweep; each trial has a folder in it, named by its key.
        is_inline: As `train_draft`.
        log: Takes lines for the user.
        done: Told of every trial of this call.
        should_stop: As `train_draft`.

    Raises:
        ConfigError: as `train_draft` and `check_sweep`.
        EvaluationFailedError: if every trial failed.
        SearchCancelledError: once `should_stop` is true.
        StoreError: if the Optuna storage cannot be used.
    """
    check_sweep(config, sweep)
    data_key = read_manifest(data_folder).key
    waiting = f"another process runs the sweep in {folder}: waiting for it"
    train = partial(
        train_draft,
        settings=settings,
        data_folder=data_folder,
        is_inline=is_inline,
        log=log,
        should_stop=should_stop,
    )
    with patient_lock(make_folder(folder) / ".lock", should_stop, lambda: log(waiting)):
        name = f"training/{_key(config, data_key, sweep.model_dump(exclude={'num_trials'}))[:12]}"
        study = _open_study(settings.resolved_optuna_url, name, sweep.seed)
        _take_over(study)
        while len(_finished(study)) < sweep.num_trials:
            trial = study.ask(_distributions(sweep))
            tried = _with(config, sweep, trial.params)
            key = _key(tried, data_key)
            trial.set_user_attr(_KEY, key)
            outcome = _try(study, trial, partial(train, tried, run_folder=folder / key[:16]))
            result = _trial(study.trials[trial.number], config, sweep)
            log(f"trial {trial.number}: {_describe(result)}")
            done(result, outcome)
        return _outcome(study, config, sweep)


def _try(
    study: optuna.Study, trial: optuna.Trial, train: Callable[[], TrainingOutcome]
) -> TrainingOutcome | None:
    """Train and tell the study what came of it; return the outcome, None where it failed."""
    try:
        outcome = train()
    except EvaluationFailedError as error:
        trial.set_user_attr("reason", str(error)[:1000])
        study.tell(trial, state=TrialState.FAIL)
        return None
    study.tell(trial, outcome.best.acceptance(outcome.criterion).accepted_tokens)
    return outcome


def sweep_of(config: TrainingRunConfig) -> TrainingSweep | None:
    """Return the sweep in front of a training, None without one.

    Raises:
        ConfigError: if a range does not rise.
    """
    if not config.sweep_trials:
        return None
    asked = {"num_trials": config.sweep_trials, "num_epochs": config.sweep_epochs}
    ranges = {"learning_rates": config.sweep_rates, "loss_weights": config.sweep_weights}
    return build_config(TrainingSweep, {**asked, **ranges, "seed": config.train.seed})


def check_sweep(config: TrainConfig, sweep: TrainingSweep) -> None:
    """Check that every trial of a sweep is a training.

    Raises:
        ConfigError: if a weight shall vary that there is none of, a bound is outside of the range
            of what it varies, or trials have too few epochs for both phases.
    """
    if sweep.loss_weights is not None and _varied(config) is None:
        raise ConfigError(
            f"loss {losses_of(config)!r} is one loss, whose weight would only scale the gradient: "
            "leave sweep_weights out, or give a sum such as kl+0.1eal"
        )
    for rate, weight in zip(sweep.learning_rates, sweep.loss_weights or (1.0, 1.0), strict=True):
        try:
            TrainingPlan.of(_with(config, sweep, {_RATE: rate, _WEIGHT: weight}), 1)
        except ConfigError as error:
            raise ConfigError(f"the sweep has trials that cannot be trained: {error}") from error


def _varied(config: TrainConfig) -> Literal["loss", "second_loss"] | None:
    """Return the field of the loss whose last weight varies: the last one that is a sum."""
    if config.second_loss is not None and len(parse_loss(config.second_loss)) > 1:
        return "second_loss"
    return "loss" if len(parse_loss(config.loss)) > 1 else None


def _with(config: TrainConfig, sweep: TrainingSweep, params: dict[str, float]) -> TrainConfig:
    """Return the training of one trial; its numbers have three digits."""
    changes: dict[str, object] = {_RATE: float(f"{params[_RATE]:.3g}")}
    varied = _varied(config)
    if sweep.loss_weights is not None and varied is not None:
        *others, last = parse_loss(getattr(config, varied))
        weighted = last.model_copy(update={"weight": float(f"{params[_WEIGHT]:.3g}")})
        changes[varied] = format_loss((*others, weighted))
    if sweep.num_epochs is not None:
        changes["num_epochs"] = sweep.num_epochs
    return build_config(TrainConfig, {**config.model_dump(), **changes})


def _distributions(sweep: TrainingSweep) -> dict[str, BaseDistribution]:
    found: dict[str, BaseDistribution] = {_RATE: FloatDistribution(*sweep.learning_rates, log=True)}
    if sweep.loss_weights is not None:
        found[_WEIGHT] = FloatDistribution(*sweep.loss_weights, log=True)
    return found


def _key(config: TrainConfig, data_key: str, extra: object = None) -> str:
    return json_hash([config.content(), data_key, training_code_version(), extra])


def _open_study(url: str, name: str, seed: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = optuna.storages.RDBStorage(url, engine_kwargs=engine_options(url))
        study = optuna.create_study(
            storage=storage,
            study_name=name,
            directions=[StudyDirection.MAXIMIZE],
            load_if_exists=True,
        )
        # What is drawn next follows from what is there, so that a resumed sweep does not repeat.
        num = len(study.get_trials(deepcopy=False))
        study.sampler = optuna.samplers.TPESampler(seed=derive_seed(seed, "sweep", num) % 2**32)
        return study
    except Exception as error:
        raise StoreError(
            f"Optuna study {name} in {without_password(url)} cannot be used ({error}): check free "
            "disk space and SPECDEC_OPTUNA_URL"
        ) from error


def _take_over(study: optuna.Study) -> None:
    """Queue again what a dead driver was at, so that its training goes on."""
    for trial in study.get_trials(deepcopy=False):
        if trial.state is TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.params)


def _finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Return trials that ended by themselves; those of a dead driver have no reason."""
    return [
        trial
        for trial in study.get_trials(deepcopy=False)
        if trial.state is TrialState.COMPLETE
        or (trial.state is TrialState.FAIL and "reason" in trial.user_attrs)
    ]


def _trial(
    found: optuna.trial.FrozenTrial, config: TrainConfig, sweep: TrainingSweep
) -> SweepTrial:
    tried = _with(config, sweep, found.params)
    is_complete = found.state is TrialState.COMPLETE
    return SweepTrial(
        key=found.user_attrs[_KEY],
        learning_rate=tried.learning_rate,
        loss=losses_of(tried),
        status="complete" if is_complete else "failed",
        accepted_tokens=found.value if is_complete else None,
        reason=found.user_attrs.get("reason"),
    )


def _outcome(study: optuna.Study, config: TrainConfig, sweep: TrainingSweep) -> SweepOutcome:
    trials = tuple(_trial(found, config, sweep) for found in _finished(study))
    complete = [trial for trial in trials if trial.accepted_tokens is not None]
    if not complete:
        raise EvaluationFailedError(
            f"all {len(trials)} trials failed, the last one as {trials[-1].reason}: lower the "
            "learning rates"
        )
    best = max(complete, key=lambda trial: trial.accepted_tokens or 0.0)
    loss, second = split_losses(best.loss)
    found = {_RATE: best.learning_rate, "loss": loss, "second_loss": second}
    whole = build_config(TrainConfig, {**config.model_dump(), **found})
    return SweepOutcome(study=study.study_name, trials=trials, best=best, config=whole)


def _describe(trial: SweepTrial) -> str:
    accepted = trial.accepted_tokens
    found = "failed" if accepted is None else f"{accepted:.3f} expected accepted tokens"
    return f"rate {trial.learning_rate:g}, loss {trial.loss}: {found}"
