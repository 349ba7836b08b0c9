"""The curve of a training: events of steps and validations as points for store and tracker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from db.training import ExpectedAcceptance, TrainingPoint
from specdec_core.training.outcome import Acceptance, StepMetrics, ValidationMetrics
from tasks.report import OnProgress, Progress
from tasks.training_files import METRICS_FILE, MetricsFile

MAX_POINTS = 200
"""Of steps; every validation has a point beside these."""
_STORE_INTERVAL_S = 10.0

Event = StepMetrics | ValidationMetrics


@dataclass(slots=True)
class TrainingCurve:
    """Takes the events of one training; steps that are done again replace the first ones.

    Args:
        on_points: Told of the whole curve, and of the points that are new, now and then.
        progress: Told of every step.
        clock: Seconds from any moment on.
    """

    on_points: Callable[[tuple[TrainingPoint, ...], tuple[TrainingPoint, ...]], None]
    progress: OnProgress = lambda _progress: None
    clock: Callable[[], float] = time.monotonic
    _steps: dict[int, StepMetrics] = field(default_factory=dict)
    _validations: dict[tuple[int, int], ValidationMetrics] = field(default_factory=dict)
    _told: set[tuple[int, int]] = field(default_factory=set)
    _due: float = 0.0

    def read(self, folder: Path) -> None:
        """Take the events that an earlier process left in the folder of the training."""
        for event in MetricsFile(folder / METRICS_FILE).read():
            self._take(event)

    def __call__(self, event: Event) -> None:
        """Take one event."""
        self._take(event)
        if isinstance(event, StepMetrics):
            text = f"loss {event.loss:.4f}, {event.tokens_per_s:.0f} tokens/s"
            self.progress(
                Progress(stage="training", done=event.step, total=event.num_steps, text=text)
            )
        elif self.clock() >= self._due:
            self.tell()

    def tell(self) -> None:
        """Tell of the curve so far."""
        self._due = self.clock() + _STORE_INTERVAL_S
        points = self.points()
        new = tuple(point for point in points if (point.step, point.phase) not in self._told)
        self._told |= {(point.step, point.phase) for point in points}
        if new:
            self.on_points(points, new)

    def points(self) -> tuple[TrainingPoint, ...]:
        """Return the curve so far, oldest first."""
        return curve_of(self._steps.values(), self._validations.values())

    def _take(self, event: Event) -> None:
        if isinstance(event, StepMetrics):
            self._steps[event.step] = event
        else:
            self._validations[event.step, event.phase] = event


def curve_of(
    steps: Iterable[StepMetrics], validations: Iterable[ValidationMetrics]
) -> tuple[TrainingPoint, ...]:
    """Return points that each stand for the steps since the one before.

    There is one per validation, and one per two-hundredth of all steps; those of a validation at
    the end of a phase and of one at the start of the next both stay.
    """
    ordered = sorted(steps, key=lambda each: each.step)
    validated = {(each.step, each.phase): each for each in validations}
    places = set(validated)
    if ordered:
        every = max(1, -(-ordered[-1].num_steps // MAX_POINTS))
        known = {step for step, _ in places}
        places |= {
            (each.step, each.phase)
            for each in ordered
            if each.step not in known and (each.step % every == 0 or each.step == each.num_steps)
        }
    points, seconds, begun = [], 0.0, 0
    for place in sorted(places):
        until = begun
        while until < len(ordered) and ordered[until].step <= place[0]:
            until += 1
        since, begun = ordered[begun:until], until
        seconds += sum(each.seconds for each in since)
        points.append(_point(place, since, validated.get(place), seconds))
    return tuple(points)


def _point(
    place: tuple[int, int],
    since: list[StepMetrics],
    validation: ValidationMetrics | None,
    seconds: float,
) -> TrainingPoint:
    step, phase = place
    spent = sum(each.seconds for each in since)
    last = since[-1] if since else None
    return TrainingPoint(
        step=step,
        phase=phase,
        seconds=seconds,
        loss=sum(each.loss for each in since) / len(since) if since else None,
        learning_rate=last.learning_rate if last else None,
        gradient_norm=last.gradient_norm if last else None,
        tokens_per_s=sum(each.num_tokens for each in since) / spent if spent > 0.0 else None,
        validation_loss=validation.loss if validation else None,
        greedy=_expected(validation.greedy) if validation else None,
        sampling=_expected(validation.sampling) if validation else None,
        is_best=validation.is_best if validation else False,
    )


def _expected(acceptance: Acceptance) -> ExpectedAcceptance:
    return ExpectedAcceptance(length=acceptance.length, by_depth=acceptance.by_depth)


def validation_lines(points: Iterable[TrainingPoint]) -> Iterator[str]:
    """Yield a line per validation: a loss that falls says nothing about acceptance by itself."""
    for point in points:
        if point.greedy is not None and point.sampling is not None:
            best = ", best so far" if point.is_best else ""
            yield (
                f"step {point.step}: validation loss {point.validation_loss:.4f}, expected "
                f"acceptance length {point.greedy.length:.3f} greedy, "
                f"{point.sampling.length:.3f} sampled{best}"
            )
