"""The leaderboard: which run it shows, what it says of every cell, and its marks."""

from __future__ import annotations

import csv
import io

import pytest

from dashboards.leaderboard import leaderboard_table, load_leaderboard, speedup_figure
from dashboards.queries import Question, load_overview
from db.api.problems import ProblemError
from db.cells import BenchmarkCell, CellFigures, Certificate
from db.schemas import Interval
from db.store import Store
from tests.integration import store_examples as examples


def cell(domain: str = "qa", **changes: object) -> BenchmarkCell:
    figures = CellFigures(
        num_items=8,
        num_tokens=100,
        acceptance_length=2.0,
        tokens_per_s=30.0,
        speedup=Interval(estimate=1.5, low=1.4, high=1.7),
        speedup_of_mean_rates=1.6,
    )
    return examples.cell("r", domain=domain, figures=figures, **changes)


def rows(*cells: BenchmarkCell) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(leaderboard_table(cells).to_csv())))


def test_lossy_and_synthetic_settings_are_marked_in_every_form() -> None:
    lossy = cell(
        is_lossless=False,
        sampling="temperature=1.0,verification=typical",
        certificate=Certificate(level="lossy", num_items=8, num_identical=5, tie_gap=0.25),
    )
    made_up = cell(domain="math", is_synthetic=True, drafter="synthetic")
    first, second = rows(lossy, made_up)
    assert (first["is_lossless"], first["level"], first["identical"]) == ("False", "lossy", "0.625")
    assert (second["is_lossless"], second["is_synthetic"]) == ("True", "True")
    table = leaderboard_table([lossy, made_up])
    assert [row[1].text for row in table.rows] == ["prompt-lookup [lossy]", "synthetic [synthetic]"]
    figure = speedup_figure([lossy, made_up, cell(drafter="token-recycling")])
    assert figure is not None
    assert {bar.name: bar.marker.opacity for bar in figure.data} == {
        "prompt-lookup [lossy]": 0.5,
        "synthetic [synthetic]": 0.5,
        "token-recycling": 1.0,
    }


def test_speeds_have_their_interval_and_failed_cells_their_reason() -> None:
    failed = cell().model_copy(
        update={"status": "failed", "figures": None, "certificate": None, "error": "ValueError: x"}
    )
    good, bad = rows(cell(), failed)
    assert (good["speedup"], good["speedup_low"], good["speedup_high"]) == ("1.5", "1.4", "1.7")
    assert (good["speedup_of_mean_rates"], good["sampling"]) == ("1.6", "greedy")
    assert (bad["speedup"], bad["error"], bad["level"]) == ("", "ValueError: x", "")
    assert speedup_figure([failed]) is None


def test_the_newest_completed_benchmark_is_shown_unless_another_is_asked_for(store: Store) -> None:
    assert load_leaderboard(store, None) is None
    first, second, third = (examples.make_run(store, kind="benchmark") for _ in range(3))
    for run in (first, second):
        store.benchmarks.put(examples.cell(run.id))
        store.runs.update(run.id, status="completed", summary={})
    board = load_leaderboard(store, None)
    assert board is not None
    assert (board.run.id, len(board.cells)) == (second.id, 1)
    assert [run.id for run in board.runs] == [third.id, second.id, first.id]
    asked = load_leaderboard(store, first.id)
    assert asked is not None
    assert asked.run.id == first.id
    with pytest.raises(ProblemError):
        load_leaderboard(store, "none")


def test_the_page_of_searches_says_where_a_benchmark_is_shown(store: Store) -> None:
    run = examples.make_run(store, kind="verify")
    detail = load_overview(store, Question(run=run.id)).detail
    assert detail is not None
    assert detail.problem is not None
    assert f"/leaderboard?run={run.id}" in detail.problem
