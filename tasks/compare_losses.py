"""The same draft under several losses and seeds: trainings, paired acceptance, one report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.schemas import RunRecord
from specdec_core.config.training import format_draft
from specdec_core.config.training_run import LossComparisonConfig, TrainingRunConfig
from specdec_core.errors import (
    SearchCancelledError,
    SpecDecError,
    StoreError,
    WorkerLostError,
)
from specdec_core.models.reference import resolve_model
from specdec_core.training.manifest import DataManifest
from tasks.draft_report import DraftEvaluation
from tasks.draft_runs import run_training, stored_report
from tasks.draft_stages import Stages
from tasks.draft_start import start_draft
from tasks.loss_compose import compare_arms
from tasks.loss_report import (
    LOSS_KIND,
    START,
    LossChange,
    LossReport,
    LossTraining,
    RateTrial,
)
from tasks.run_rows import start_run
from tasks.runtime import run_files, run_log
from tasks.sinks import Tracker, mirrored_run
from tasks.training_check import check_losses, check_training_run
from tasks.training_keys import training_key
from tasks.training_mirror import loss_metrics, training_child
from tasks.training_report import TrainingReport
from tasks.training_setup import TrainingSetup


def compare_losses(
    config: LossComparisonConfig, setup: TrainingSetup, stages: Stages | None = None
) -> LossReport:
    """Train under every loss with every seed, compare on the same prompts, store the report.

    Where learning rates are given, each is tried per loss with the first seed, and the one with
    the best expected acceptance on validation data is used for all seeds. Finished trainings and
    evaluations are taken from the store; a training that fails becomes a row with its reason. The
    draft before training, if it is asked for, decodes first and is in the tables as one more row.

    Args:
        config: The comparison.
        setup: Where things run and are kept, and who hears of them.
        stages: What does the work; None for the real ones.

    Raises:
        ConfigError: if something cannot be used; nothing is stored if that is known before.
        SearchCancelledError: if told to stop.
        StoreError: if a database cannot be used.
        WorkerLostError: if no workers can be had.
    """
    settings, store = setup.settings, setup.store
    stages = stages or Stages()
    target = resolve_model(config.base.train.data.target, settings.cache_dir, setup.log)
    check_training_run(next(config.variants()), target, settings, is_inline=setup.is_inline)
    for variant in config.variants():
        check_losses(variant.train)
    name = " ".join(config.losses)[:120]
    run = start_run(store, LOSS_KIND, name, config, settings, setup.flow_run_id)
    tracker = setup.make_tracker()
    with (
        mirrored_run(store, run, tracker, run_files(settings, run.id)) as metrics,
        run_log(settings, run.id) as log_file,
    ):
        data_folder, manifest = stages.make_data(
            config.base.train.data,
            settings,
            num_validation=config.base.train.num_validation,
            is_inline=setup.is_inline,
            log=setup.log,
            should_stop=setup.should_stop,
        )
        work = _Work(config, setup, stages, manifest, run, tracker)
        if config.compare_start:
            work.decode_with_start(data_folder)
        work.train_all()
        report = work.report(target.reference, str(log_file))
        setup.complete(run, report)
        metrics |= loss_metrics(report)
    setup.log(report.headline)
    return report


# What ends a comparison, where other errors end one of its trainings.
_ENDS_ALL = (SearchCancelledError, StoreError, WorkerLostError)


@dataclass(slots=True)
class _Work:
    """One comparison in progress."""

    config: LossComparisonConfig
    setup: TrainingSetup
    stages: Stages
    manifest: DataManifest
    run: RunRecord
    tracker: Tracker
    rates: list[RateTrial] = field(default_factory=list)
    trainings: list[LossTraining] = field(default_factory=list)
    evaluations: dict[tuple[str, int], DraftEvaluation] = field(default_factory=dict)
    start_error: str | None = None

    def decode_with_start(self, data_folder: Path) -> None:
        """Evaluate the draft before training as trained ones are; a head's is of the first seed."""
        variant = self.config.variant(self.config.losses[0], self.config.seeds[0])
        setup = self.setup
        try:
            folder = start_draft(variant.train, setup.settings, data_folder, setup.log)
            setup.log(f"decoding with the draft before training, {folder}")
            found = self.stages.evaluate(variant.evaluation, setup, folder)
        except _ENDS_ALL:
            raise
        except SpecDecError as error:
            self.start_error = str(error)
            setup.log(f"{START}: failed and left out ({error})")
            return
        self.evaluations[START, variant.train.seed] = found

    def train_all(self) -> None:
        """Do every training; failed ones become rows."""
        for loss in self.config.losses:
            rate = self._rate(loss)
            if rate is None:
                self._leave_out(loss)
                continue
            for seed in self.config.seeds:
                self._train(loss, seed, rate)

    def _trained(self, config: TrainingRunConfig) -> TrainingReport:
        """The report of a training, done now unless the store has it."""
        key = training_key(config.train, self.manifest, self.setup.settings)
        known = stored_report(self.setup.store, self.setup.settings, config, key)
        if known is None:
            return run_training(config, self.setup, self.stages)
        rate, seed = config.train.learning_rate, config.train.seed
        self.setup.log(f"{known.losses} rate {rate:g} seed {seed} is done")
        return known

    def _rate(self, loss: str) -> float | None:
        """The learning rate for a loss; None if none of those tried can be used."""
        if not self.config.learning_rates:
            return self.config.base.train.learning_rate
        tried = list(self._trials(loss))
        usable = [each for each in tried if each.expected_length is not None]
        best = max(usable, key=lambda each: each.expected_length or 0.0, default=None)
        self.rates += [
            each.model_copy(update={"is_chosen": True}) if each is best else each for each in tried
        ]
        if best is None:
            self.setup.log(f"{loss}: no learning rate could be used")
            return None
        self.setup.log(
            f"{loss}: learning rate {best.learning_rate:g}, expected acceptance length "
            f"{best.expected_length:.3f}"
        )
        return best.learning_rate

    def _trials(self, loss: str) -> Iterator[RateTrial]:
        for rate in self.config.learning_rates:
            variant = self.config.variant(loss, self.config.seeds[0], rate)
            plain = variant.model_copy(update={"evaluate": False, "export": False})
            try:
                outcome = self._trained(plain).outcome
            except _ENDS_ALL:
                raise
            except SpecDecError as error:
                yield RateTrial(loss=loss, learning_rate=rate, error=str(error))
                continue
            yield RateTrial(
                loss=loss,
                learning_rate=rate,
                criterion=outcome.criterion,
                expected_length=outcome.best.acceptance(outcome.criterion).length,
                best_step=outcome.best.step,
            )

    def _leave_out(self, loss: str) -> None:
        """Keep the last rate tried as a failed training; why it failed is told with the rates."""
        failed = LossTraining(
            loss=loss,
            seed=self.config.seeds[0],
            learning_rate=self.config.learning_rates[-1],
            error="no learning rate could be used",
        )
        self.trainings.append(failed)

    def _train(self, loss: str, seed: int, rate: float) -> None:
        variant = self.config.variant(loss, seed, rate)
        named: dict[str, Any] = {
            "loss": loss,
            "seed": seed,
            "learning_rate": variant.train.learning_rate,
        }
        try:
            report = self._trained(variant)
        except _ENDS_ALL:
            raise
        except SpecDecError as error:
            self.setup.log(f"{loss}, seed {seed}: failed and left out ({error})")
            self.trainings.append(LossTraining(**named, error=str(error)))
            return
        outcome = report.outcome
        made = LossTraining(
            **named,
            run_id=report.run_id,
            checkpoint_id=report.checkpoint.id,
            state=report.checkpoint.state,
            criterion=outcome.criterion,
            start_length=outcome.start.acceptance(outcome.criterion).length,
            best_length=outcome.best.acceptance(outcome.criterion).length,
            best_step=outcome.best.step,
            curve=tuple(point for point in report.curve if point.greedy is not None),
        )
        self.trainings.append(made)
        if report.evaluation is not None:
            self.evaluations[loss, seed] = report.evaluation
        self.tracker.child(self.run.id, training_child(report))

    def report(self, target: str, log_file: str) -> LossReport:
        """Say what came of it."""
        cells, changes, notes = compare_arms(self.evaluations)
        report = LossReport(
            run_id=self.run.id,
            headline="",
            config=self.config,
            target=target,
            draft=format_draft(self.config.base.train.draft),
            rates=tuple(self.rates),
            trainings=tuple(self.trainings),
            cells=cells,
            changes=changes,
            notes=(*notes, *self._notes()),
            log_file=log_file,
        )
        return report.model_copy(update={"headline": _headline(report)})

    def _notes(self) -> Iterator[str]:
        if self.start_error is not None:
            yield f"{START}: {self.start_error}"
        for (loss, _), found in self.evaluations.items():
            if loss == START and found.failures:
                yield f"{START}: accepts otherwise in decoding than expected: {found.failures[0]}"
        for trial in self.rates:
            if trial.error is not None:
                yield f"{trial.loss}, learning rate {trial.learning_rate:g}: {trial.error}"
        for one in self.trainings:
            if one.error is not None:
                yield f"{one.loss}, seed {one.seed}: {one.error}"
            elif one.state == "rejected":
                yield (
                    f"{one.loss}, seed {one.seed}: rejected, realised acceptance is not what "
                    "training says; its figures are in the tables all the same"
                )


def _headline(report: LossReport) -> str:
    """What the intervals decide against the start and against the first loss, in one sentence."""
    count = len(report.trainings)
    trained = f"{count} training{'' if count == 1 else 's'} of {report.draft}"
    told = [
        f"against {base}: {_decided(changes)}"
        for base in (START, report.config.losses[0])
        if (changes := report.changes_against(base))
    ]
    if not told:
        return f"{trained}; nothing decoded that could be compared"
    return f"{trained}; accepted tokens per step {'; '.join(told)}"


def _decided(changes: Sequence[LossChange]) -> str:
    if all(each.reading == "too few prompts" for each in changes):
        most = max(each.num_prompts for each in changes)
        return f"{most} prompts are too few to tell losses apart"
    decided = [
        f"{each.loss} {each.accepted.estimate:+.1%} ({each.shape}, T={each.temperature:g})"
        for each in changes
        if each.accepted is not None and each.reading in ("more", "less")
    ]
    return ", ".join(decided) or "no loss is told apart from it"
