"""Curves from events: what a point stands for, and events that are told twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.training import TrainingPoint
from specdec_core.training.outcome import Acceptance, StepMetrics, ValidationMetrics
from tasks.training_curve import MAX_POINTS, TrainingCurve, curve_of, validation_lines


def step(number: int, *, num_steps: int = 6, phase: int = 1, loss: float = 1.0) -> StepMetrics:
    return StepMetrics(
        step=number,
        num_steps=num_steps,
        epoch=0,
        phase=phase,
        loss=loss,
        terms={},
        learning_rate=number / 1000,
        gradient_norm=0.5,
        num_tokens=100,
        num_skipped=0,
        seconds=0.5,
    )


def validation(number: int, *, phase: int = 1, is_best: bool = False) -> ValidationMetrics:
    return ValidationMetrics(
        step=number,
        epoch=0,
        phase=phase,
        loss=2.0,
        terms={},
        # 10 windows, 5 reach the first depth, 2 the second.
        greedy=Acceptance(num_windows=10, reached=(5.0, 2.0)),
        sampling=Acceptance(num_windows=10, reached=(8.0, 4.0)),
        num_sequences=2,
        num_tokens=20,
        seconds=1.0,
        is_best=is_best,
    )


def test_a_point_stands_for_the_steps_since_the_one_before() -> None:
    # 400 steps: a point for every second one, and one for the validation at step 3.
    steps = [step(n, num_steps=2 * MAX_POINTS, loss=float(n)) for n in range(1, 6)]
    points = curve_of(steps, [validation(0), validation(3, is_best=True)])
    assert [(p.step, p.loss) for p in points] == [(0, None), (2, 1.5), (3, 3.0), (4, 4.0)]
    found = points[2]
    assert (found.seconds, found.tokens_per_s, found.learning_rate) == (1.5, 200.0, 0.003)
    assert (found.validation_loss, found.is_best) == (2.0, True)
    assert found.greedy is not None
    assert found.greedy.length == pytest.approx(1.7)
    assert found.greedy.by_depth == (0.5, 0.4)
    assert points[1].greedy is None


def test_the_end_of_a_phase_and_the_start_of_the_next_are_two_points() -> None:
    steps = [step(1), step(2), step(3, phase=2)]
    points = curve_of(steps, [validation(2), validation(2, phase=2)])
    assert [(p.step, p.phase, p.loss) for p in points] == [
        (1, 1, 1.0),
        (2, 1, 1.0),
        (2, 2, None),
        (3, 2, 1.0),
    ]


def test_events_told_again_replace_the_first_and_new_points_are_told_once() -> None:
    told: list[tuple[TrainingPoint, ...]] = []
    curve = TrainingCurve(
        lambda _all, new: told.append(new), clock=iter(range(0, 900, 30)).__next__
    )
    for event in (validation(0), step(1), step(2), validation(2)):
        curve(event)
    # A worker was lost: the steps are done again.
    for event in (step(1, loss=5.0), step(2, loss=7.0), step(3), validation(3)):
        curve(event)
    curve.tell()
    assert [[p.step for p in new] for new in told] == [[0], [1, 2], [3]]
    assert [p.loss for p in curve.points()] == [None, 5.0, 7.0, 1.0]


def test_what_an_earlier_process_wrote_is_part_of_the_curve(tmp_path: Path) -> None:
    lines = [validation(0).model_dump_json(), step(1).model_dump_json(), '{"kind": "st']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    curve = TrainingCurve(lambda _all, _new: None)
    curve.read(tmp_path)
    curve.read(tmp_path / "nowhere")
    curve(step(2))
    assert [p.step for p in curve.points()] == [0, 1, 2]


def test_validations_are_told_with_the_acceptance_that_counts() -> None:
    (line,) = validation_lines(curve_of([step(1)], [validation(1, is_best=True)]))
    assert line == (
        "step 1: validation loss 2.0000, expected acceptance length 1.700 greedy, 2.200 sampled, "
        "best so far"
    )
