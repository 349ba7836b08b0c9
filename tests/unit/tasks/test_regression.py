"""What alarms against a baseline, and what does not."""

from __future__ import annotations

import pytest

from db.cells import BenchmarkCell, CellFigures, CellSample
from tasks.regression import find_regressions


def cell(seconds: list[float], steps: int = 10, run: str = "a") -> BenchmarkCell:
    return BenchmarkCell(
        run_id=run,
        target="path:/table",
        target_identity="x",
        dtype="float32",
        domain="translation",
        drafter="prompt-lookup",
        status="done",
        figures=CellFigures(
            num_items=len(seconds), num_tokens=1, acceptance_length=2.0, tokens_per_s=1.0
        ),
        samples=tuple(
            CellSample(item_id=str(i), num_tokens=21, num_steps=steps, seconds=(value,))
            for i, value in enumerate(seconds)
        ),
    )


def test_a_ten_percent_loss_alarms_and_a_small_or_noisy_one_does_not() -> None:
    base = [1.0, 2.0, 1.5, 0.5, 1.2, 0.8, 1.1, 0.9]
    before = cell(base)
    assert find_regressions(before, cell(base, run="b"), 0.05) == []
    (found,) = find_regressions(before, cell([1.12 * s for s in base], run="b"), 0.05)
    assert found.measure == "tokens_per_s"
    assert found.change.estimate == pytest.approx(1 / 1.12 - 1)
    assert "tokens_per_s of prompt-lookup in translation changed by -10.7%" in found.text
    assert find_regressions(before, cell([1.03 * s for s in base], run="b"), 0.05) == []
    noisy = [s * (3.0 if i == 1 else 0.9) for i, s in enumerate(base)]
    assert find_regressions(before, cell(noisy, run="b"), 0.05) == []


def test_a_loss_of_acceptance_alarms_too() -> None:
    base = [1.0] * 8
    found = find_regressions(cell(base), cell(base, steps=12, run="b"), 0.05)
    assert [one.measure for one in found] == ["acceptance_length"]
