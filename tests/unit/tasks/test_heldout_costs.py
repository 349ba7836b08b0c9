"""Rates of useful tokens, memory of requests and selection intervals, worked out by hand."""

from __future__ import annotations

import pytest

from db.store import Store
from flows.report import comparison_table, front_table
from specdec_core.config.settings import Settings
from specdec_core.records import EvaluationSummary, SampleResult, StepTrace
from tasks.heldout_costs import memory_figures, memory_of, useful_figures
from tasks.row_outputs import gain_intervals
from tests.table_evaluator import Control
from tests.unit.tasks.inline_search import search


def sample(
    item: str, useful: int, seconds: float, *, steps: int = 4, score: float | None = None
) -> SampleResult:
    """Nine tokens, eight of them in `steps` steps."""
    committed = tuple(8 // steps for _ in range(steps))
    return SampleResult(
        item_id=item,
        prompt_tokens=1,
        token_ids=tuple(range(9)),
        text="",
        answer="",
        useful_tokens=useful,
        finish_reason="length",
        score=score,
        raw_score=score,
        trace=StepTrace(
            drafted=(4,) * steps,
            depth=(4,) * steps,
            accepted=tuple(count - 1 for count in committed),
            committed=committed,
        ),
        seconds=seconds,
    )


def test_what_comes_behind_the_answer_costs_time_and_counts_for_nothing() -> None:
    dense = [sample("a", 9, 0.5), sample("b", 5, 0.5)]
    sparse = [sample("a", 9, 0.4), sample("b", 9, 0.4)]
    notes: list[str] = []
    found = useful_figures(dense, sparse, notes)
    # After the first token: 8 + 4 in 1 s, and 8 + 8 in 0.8 s.
    assert found["useful_tokens_per_s_dense"] == pytest.approx(12)
    assert found["useful_tokens_per_s_sparse"] == pytest.approx(20)
    assert found["useful_speedup"].estimate == pytest.approx(20 / 12)
    # A quarter of the resamples is item a twice, 20 / 16, and a quarter b twice, 20 / 8.
    assert found["useful_speedup"].low == pytest.approx(1.25)
    assert found["useful_speedup"].high == pytest.approx(2.5)
    assert notes == []


def test_answers_without_useful_tokens_have_no_rate() -> None:
    notes: list[str] = []
    assert useful_figures([sample("a", 0, 0.5)], [sample("a", 9, 0.5)], notes) == {}
    assert len(notes) == 1
    assert "no tokens of use" in notes[0]


def summary(weight: int | None, per_token: int | None) -> EvaluationSummary:
    names = EvaluationSummary.model_fields
    zeros = {name: 0 for name, each in names.items() if each.is_required()}
    return EvaluationSummary.model_validate(
        {**zeros, "weight_bytes": weight, "cache_bytes_per_token": per_token}
    )


def test_memory_is_weights_and_the_full_cache_of_each_request() -> None:
    samples = [sample("a", 9, 0.5), sample("b", 9, 0.5)]
    # One prompt token and nine of output.
    dense = memory_of(summary(100, 2), samples)
    sparse = memory_of(summary(80, 1), samples)
    assert (dense, sparse) == ([120.0, 120.0], [90.0, 90.0])
    found = memory_figures(dense, sparse)
    assert (found["memory_dense_bytes"], found["memory_sparse_bytes"]) == (120.0, 90.0)
    assert found["memory_change"].estimate == pytest.approx(-0.25)
    assert found["memory_change"].high == pytest.approx(-0.25)
    assert memory_figures(memory_of(summary(None, None), samples), sparse) == {}


def test_selection_intervals_are_paired_by_item() -> None:
    dense = (sample("a", 9, 0.5, score=0.2), sample("b", 9, 0.5, score=0.4))
    sparse = (
        sample("a", 9, 0.5, steps=2, score=0.3),
        sample("b", 9, 0.5, steps=4, score=0.4),
    )
    found = gain_intervals(dense, sparse)
    # 16 tokens in 8 steps become 16 in 6; item a alone doubles, item b alone stays.
    assert found["gain_acceptance_interval"].estimate == pytest.approx(8 / 6 - 1)
    assert found["gain_acceptance_interval"].low == pytest.approx(0.0)
    assert found["gain_acceptance_interval"].high == pytest.approx(1.0)
    # 0.6 in all becomes 0.7; item a alone gains a half, item b alone nothing.
    assert found["gain_metric_interval"].estimate == pytest.approx(0.7 / 0.6 - 1)
    assert found["gain_metric_interval"].low == pytest.approx(0.0)
    assert found["gain_metric_interval"].high == pytest.approx(0.5)
    assert gain_intervals(dense, ()) == {}


def test_front_and_frontiers_carry_their_intervals(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control)
    rows = [row for level in report.levels for row in level.rows]
    named = {row.skip for row in report.front} | {"2,3"}
    assert {row.skip for row in rows if row.is_frontier} >= {"2", "3"}
    for row in rows:
        has_interval = row.gain_metric_interval is not None
        assert has_interval == (row.is_frontier or row.skip in named)
        if row.gain_metric_interval is not None:
            assert row.gain_metric_interval.estimate == pytest.approx(row.gain_metric)
            assert row.gain_acceptance_interval is not None
            assert row.gain_acceptance_interval.estimate == pytest.approx(row.gain_acceptance)
    assert report.dense.gain_metric_interval is None
    (shown,) = [cells for cells in front_table(report).rows if cells[0] == "2,3"]
    # By the table every item is drafted alike: 9 steps instead of 12.
    assert "+33.3% [+33.3%, +33.3%]" in shown


def test_the_comparison_shows_useful_tokens_and_memory(
    settings: Settings, store: Store, control: Control
) -> None:
    table = comparison_table(search(settings, store, control))
    shown = {row[0]: row[1:] for row in table.rows}
    # All of the table's tokens are of use.
    assert shown["tokens of use per second"] == shown["tokens per second"]
    assert shown["memory of a request, MB"] == ("-", "-", "-")  # no model, no weights
