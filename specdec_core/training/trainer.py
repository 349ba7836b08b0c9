"""The training loop: a plain library that knows neither Ray nor where its data comes from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.training.checkpoints import CheckpointFolder, Progress, TrainingState
from specdec_core.training.draft import TrainableDraft
from specdec_core.training.memory import give_back_memory
from specdec_core.training.objective import Objective
from specdec_core.training.optimizer import make_optimizer
from specdec_core.training.outcome import StepMetrics, ValidationMetrics
from specdec_core.training.plan import BatchSource, TrainingPlan
from specdec_core.training.state import (
    Reference,
    copy_moments,
    copy_weights,
    load_moments,
    load_weights,
)
from specdec_core.training.step import StepContext, do_step
from specdec_core.training.validation import Validation, validate
from specdec_core.training.workers import Workers, trainable


@dataclass(frozen=True, slots=True)
class TrainingParts:
    """What a training consists of.

    Attributes:
        plan: Steps, rates and phases.
        draft: What is trained; its module is on the device of the batches.
        objectives: Of the first phase, and of the second if there is one.
        source: Where sequences come from.
        checkpoints: Where states are kept.
        workers: This process among the others.
        record: Takes metrics; called on the first worker only.
        clock: Seconds.
    """

    plan: TrainingPlan
    draft: TrainableDraft
    objectives: tuple[Objective, ...]
    source: BatchSource
    checkpoints: CheckpointFolder
    workers: Workers
    record: Callable[[StepMetrics | ValidationMetrics], None]
    clock: Callable[[], float] = time.monotonic


class Trainer:
    """Trains a draft from where its checkpoints end.

    All workers call the same methods in the same order. What a step does is a function of the
    state before it, so that a training that was ended anywhere and resumed is, in one process on
    the CPU, bitwise equal to one that was not.

    Args:
        parts: What the training consists of.
    """

    def __init__(self, parts: TrainingParts) -> None:
        self._parts, self._plan, self._workers = parts, parts.plan, parts.workers
        self._parameters: Mapping[str, nn.Parameter] = trainable(parts.draft.module)
        self._optimizer = make_optimizer(self._parameters, parts.plan.weight_decay)
        self._progress = Progress()
        self._reference: Reference | None = None
        self._reference_weights: Mapping[str, Tensor] = {}
        parts.draft.module.eval()  # no dropout, so that nothing draws from a global generator

    @property
    def progress(self) -> Progress:
        """How far the training is."""
        return self._progress

    def resume(self) -> int:
        """Take up the newest checkpoint, if there is one; return the steps done.

        Raises:
            ConfigError: if it is damaged or of another draft, or the best one so far is gone.
        """
        state = self._parts.checkpoints.load()
        if state is not None:
            self._parts.checkpoints.check_kept(state.progress.best_step)
            load_weights(self._parameters, state.weights)
            load_moments(self._optimizer, self._parameters, state.moments)
            self._progress = state.progress
            if state.reference:
                self._set_reference(state.reference)
        return self._progress.step

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Progress:
        """Train to the end and leave the best weights in the draft.

        Args:
            should_stop: Asked between steps on every worker; true on one ends all.

        Raises:
            ConfigError: if no held-out response is as long as a window.
            SearchCancelledError: once `should_stop` is true; the state is stored before.
            DataError: if states of the data are damaged; on every worker.
            EvaluationFailedError: if a loss or gradient is not finite.
            StoreError: if a checkpoint or metrics cannot be written; on every worker.
        """
        if self._progress.best_step is None:
            self._keep_reference()
            self._validate()
            self._save()
        while self._progress.step < self._plan.num_steps:
            if self._workers.any(should_stop()):
                self._save()
                raise SearchCancelledError(
                    f"training was told to stop after {self._progress.step} of "
                    f"{self._plan.num_steps} steps: the same command continues"
                )
            self._step()
            if self._plan.validates_after(self._progress.step):
                self._validate()
                self._save()
        self._load_best()
        return self._progress

    def _step(self) -> None:
        started, done = self._parts.clock(), self._progress.step
        objective = self._parts.objectives[self._plan.phase(done) - 1]
        if done == self._plan.second_start:
            self._keep_reference()
        context = StepContext(
            draft=self._parts.draft,
            parameters=self._parameters,
            optimizer=self._optimizer,
            workers=self._workers,
            plan=self._plan,
            source=self._parts.source,
        )
        result = do_step(context, objective, self._reference, done)
        give_back_memory(self._workers.device)
        seconds = self._parts.clock() - started
        before = self._progress
        self._progress = before.model_copy(
            update={
                "step": done + 1,
                "num_tokens": before.num_tokens + result.num_tokens,
                "num_skipped": before.num_skipped + result.num_skipped,
                "seconds": before.seconds + seconds,
            }
        )
        self._record(
            StepMetrics(
                step=done + 1,
                num_steps=self._plan.num_steps,
                epoch=self._plan.epoch(done),
                phase=self._plan.phase(done),
                loss=result.loss,
                terms=result.terms,
                learning_rate=self._plan.rate(done),
                gradient_norm=result.gradient_norm,
                num_tokens=result.num_tokens,
                num_skipped=self._progress.num_skipped,
                seconds=seconds,
            )
        )

    def _validate(self) -> None:
        """Measure the draft on held-out responses and say whether it is the best so far."""
        started, done = self._parts.clock(), self._progress.step
        phase = self._plan.phase(max(done - 1, 0))
        batches = self._parts.source.validation_batches(
            rank=self._workers.rank, num_workers=self._workers.num
        )
        found = validate(
            self._parts.draft,
            self._parts.objectives[phase - 1],
            batches,
            self._workers,
            reference=self._reference,
            is_autocast=self._plan.is_autocast,
        )
        self._check_windows(found)
        metrics = ValidationMetrics(
            step=done,
            epoch=self._plan.epoch(max(done - 1, 0)),
            phase=phase,
            loss=found.loss,
            terms=found.terms,
            greedy=found.greedy,
            sampling=found.sampling,
            num_sequences=found.num_sequences,
            num_tokens=found.num_tokens,
            seconds=self._parts.clock() - started,
        )
        value = metrics.acceptance(self._plan.criterion).accepted_tokens
        best = self._progress.best_value
        if best is None or value > best:
            self._progress = self._progress.model_copy(
                update={"best_step": done, "best_value": value}
            )
            metrics = metrics.model_copy(update={"is_best": True})
        self._record(metrics)

    def _check_windows(self, found: Validation) -> None:
        """Check that there is something by which a checkpoint can be chosen."""
        if not found.greedy.num_windows:
            gamma = len(found.greedy.reached)
            raise ConfigError(
                f"none of the {found.num_sequences} held-out responses has {gamma} tokens in a row "
                "that the draft predicts, so no checkpoint could be chosen: lower gamma, raise "
                "max_new_tokens or num_validation, or give other prompts"
            )

    def _record(self, metrics: StepMetrics | ValidationMetrics) -> None:
        is_first, record = self._workers.is_first, self._parts.record
        self._workers.together(lambda: record(metrics) if is_first else None)

    def _save(self) -> None:
        weights = copy_weights(self._parameters)
        moments = copy_moments(self._optimizer, self._parameters)
        state = TrainingState(self._progress, weights, moments, self._reference_weights)
        is_first, folder = self._workers.is_first, self._parts.checkpoints
        self._workers.together(lambda: folder.save(state) if is_first else None)

    def _keep_reference(self) -> None:
        """Keep the weights that a phase begins with, where its losses compare with them."""
        objective = self._parts.objectives[self._plan.phase(self._progress.step) - 1]
        if objective.needs_reference:
            self._set_reference(copy_weights(self._parameters))

    def _set_reference(self, weights: Mapping[str, Tensor]) -> None:
        self._reference_weights = weights
        self._reference = Reference(self._parts.draft, self._parameters, weights)

    def _load_best(self) -> None:
        state = self._parts.checkpoints.load(self._progress.best_step)
        assert state is not None  # pruning never removes the best
        load_weights(self._parameters, state.weights)
