"""The metrics file: truncated at a resume, followed while it grows and is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.errors import StoreError
from specdec_core.training.outcome import Acceptance, StepMetrics, ValidationMetrics
from tasks.training_files import LineTail, MetricsFile


def step(number: int, loss: float = 1.0) -> StepMetrics:
    return StepMetrics(
        step=number,
        num_steps=9,
        epoch=0,
        loss=loss,
        terms={"kl": loss},
        learning_rate=0.1,
        gradient_norm=1.0,
        num_tokens=10,
        num_skipped=0,
        seconds=2.0,
    )


def validation(number: int) -> ValidationMetrics:
    acceptance = Acceptance(num_windows=4, reached=(2.0, 1.0, 0.0))
    return ValidationMetrics(
        step=number,
        epoch=0,
        loss=1.0,
        terms={},
        greedy=acceptance,
        sampling=acceptance,
        num_sequences=1,
        num_tokens=6,
        seconds=1.0,
    )


def test_acceptance_is_counted_before_it_is_divided() -> None:
    acceptance = validation(0).greedy
    assert acceptance.accepted_tokens == 0.75
    assert acceptance.length == 1.75
    assert acceptance.by_depth == (0.5, 0.5, 0.0)
    assert Acceptance(num_windows=0, reached=(0.0,)).length == 1.0
    assert step(1).tokens_per_s == 5.0


def test_what_follows_a_resumed_step_is_dropped(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    assert metrics.read() == []
    events: list[StepMetrics | ValidationMetrics] = []
    events += [validation(0), step(1), step(2), validation(2), step(3)]
    metrics.truncate(None)
    for event in events:
        metrics.append(event)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')  # killed while it wrote
    metrics.truncate(2)
    assert metrics.read() == events[:4]
    metrics.append(step(3, loss=0.5))
    assert metrics.read() == [*events[:4], step(3, loss=0.5)]
    metrics.truncate(None)
    assert metrics.read() == []


def test_a_tail_reports_every_line_once_and_those_done_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tail, metrics = LineTail(path), MetricsFile(path)
    assert tail.read() == []
    metrics.truncate(None)
    metrics.append(validation(0))
    metrics.append(step(1))
    metrics.append(step(2))
    assert len(tail.read()) == 3
    assert tail.read() == []
    with path.open("a") as file:
        file.write('{"half')
    assert tail.read() == []
    metrics.truncate(1)
    metrics.append(step(2, loss=0.5))
    metrics.append(step(3))
    lines = tail.read()
    assert lines == [step(2, loss=0.5).model_dump_json(), step(3).model_dump_json()]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"metrics\.jsonl cannot be written"):
        MetricsFile(tmp_path / "not there" / "metrics.jsonl").append(step(1))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "steps 1 to 2 are not all in it"),
        ([validation(0), step(1)], "steps 1 to 2 are not all in it"),
        ([step(1), step(2)], "steps 1 to 2 are not all in it"),  # nothing of the start
        ([validation(0), "\0\0\0\0", step(1), step(2)], "line 2 says"),
        ([validation(0), "\udcff", step(1), step(2)], "line 2 says"),
        ([validation(0), '{"kind": "step"}', step(1), step(2)], "line 2 says"),
    ],
)
def test_what_was_measured_before_a_resume_must_all_be_there(
    tmp_path: Path, lines: list[StepMetrics | ValidationMetrics | str], why: str
) -> None:
    path = tmp_path / "metrics.jsonl"
    text = [line if isinstance(line, str) else line.model_dump_json() for line in lines]
    path.write_text("".join(f"{one}\n" for one in text), errors="surrogateescape")
    with pytest.raises(StoreError, match=rf"{why}.*put it back, or 'rm -r {tmp_path}'"):
        MetricsFile(path).truncate(2)


def test_damage_behind_a_resumed_step_is_dropped_with_what_is_done_again(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    for event in (validation(0), step(1), step(2)):
        metrics.append(event)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("\0\0\0\n")
    metrics.truncate(1)
    assert metrics.read() == [validation(0), step(1)]
