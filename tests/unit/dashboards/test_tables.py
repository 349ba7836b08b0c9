from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from dashboards import tables
from dashboards.comparison import comparisons, result_of
from dashboards.queries import Question, load_overview
from dashboards.summary import SearchSummary
from dashboards.views import Column, Table, text_cell
from db.schemas import Interval
from db.store import Store
from tests.integration import store_examples
from tests.unit.dashboards import examples


def search(**changes: object) -> SearchSummary:
    return SearchSummary.model_validate(examples.report("r1", **changes).model_dump())


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_front_csv_has_the_front_with_full_precision() -> None:
    rows = read(tables.front_table(search()).to_csv([("run_id", "r1")]))
    assert [(row["run_id"], row["skip"], row["gain_acceptance"]) for row in rows] == [
        ("r1", "a3", "-0.01"),
        ("r1", "a1,a3", "0.08"),
    ]
    assert rows[1]["evaluation_key"] == "a" * 64
    assert rows[1]["is_feasible"] == "True"


def test_levels_csv_has_every_configuration_with_failures() -> None:
    rows = read(tables.levels_table(search()).to_csv())
    assert [(row["level"], row["skip"]) for row in rows] == [
        ("1", "a3"),
        ("1", "a1"),
        ("1", "a2"),
        ("2", "a1,a3"),
        ("2", "a2,a3"),
    ]
    assert rows[2]["violation"] == "0.2"
    assert (rows[4]["acceptance"], rows[4]["error"]) == ("", "MemoryError: too large")


def test_level_captions_count_what_is_inside() -> None:
    captions = [table.caption for table in tables.level_tables(search())]
    assert captions == [
        "Level 1: 3 configurations, 2 within tolerance",
        "Level 2: 2 configurations, 1 within tolerance",
    ]


def test_heldout_table_reads_intervals_in_words() -> None:
    rows = read(tables.heldout_table(search()).to_csv())
    assert [(row["figure"].split(",")[0], row["kind"], row["reading"]) for row in rows] == [
        ("acceptance length", "relative", "better than dense"),
        ("task metric", "relative", "not told apart from dense"),
        ("decode speed", "ratio", "better than dense"),
        (
            "speed over dense without a drafter",
            "ratio",
            "better than dense without a drafter",
        ),
    ]
    assert (rows[1]["change"], rows[1]["low"], rows[1]["high"]) == ("-0.05", "-0.12", "0.02")
    texts = [[cell.text for cell in row] for row in tables.heldout_table(search()).rows]
    assert texts[0][1:6] == ["2.000", "2.100", "+5.0%", "+2.0%", "+8.0%"]
    assert texts[2][1:6] == ["40.0", "44.0", "1.100x", "1.040x", "1.150x"]


def test_slower_than_dense_beyond_doubt_is_said() -> None:
    slow = examples.heldout(speedup=Interval(estimate=0.9, low=0.85, high=0.97))
    readings = [row.reading for row in comparisons(search(heldout=slow))]
    assert readings[2] == "worse than dense"


@pytest.mark.parametrize(
    ("acceptance_low", "speed_low", "changes", "result"),
    [
        (0.01, 0.9, {}, "gain"),
        (-0.01, 1.01, {}, "gain"),
        (-0.01, 0.9, {}, "unsure gain"),
        (0.01, 1.01, {"status": "rejected"}, "did not hold"),
        (0.01, 1.01, {"skip": "", "is_dense": True}, "no gain"),
    ],
)
def test_result_is_read_from_intervals(
    acceptance_low: float, speed_low: float, changes: dict[str, Any], result: str
) -> None:
    found = examples.heldout(
        acceptance_change=Interval(estimate=0.05, low=acceptance_low, high=0.08),
        speedup=Interval(estimate=1.1, low=speed_low, high=1.15),
    )
    profile = store_examples.profile("r1", heldout=found, **changes)
    assert result_of(profile) == result
    assert result_of(profile.model_copy(update={"heldout": None})) != "gain"


def test_plain_difference_of_a_small_metric_is_not_shown_as_per_cent() -> None:
    # 0.0005 to 0.0205 is a difference of 0.02; as a relative change it would be +4000 %.
    small = examples.heldout(
        metric_dense=0.0005,
        metric_sparse=0.0205,
        metric_change=Interval(estimate=0.02, low=0.01, high=0.03),
        metric_change_kind="difference",
    )
    row = comparisons(search(heldout=small))[1]
    assert row.kind == "difference"
    assert [cell.text for cell in tables.heldout_table(search(heldout=small)).rows[1]][3:6] == [
        "+0.0200",
        "+0.0100",
        "+0.0300",
    ]


def test_domain_without_metric_has_no_metric_row() -> None:
    bare = examples.heldout(metric_dense=None, metric_sparse=None, metric_change=None)
    figures = [row.figure for row in comparisons(search(heldout=bare))]
    assert "task metric" not in figures
    assert len(figures) == 3


def test_figures_of_a_dense_profile_are_its_own(store: Store) -> None:
    profile = examples.seed(store, examples.no_gain, {"skip": "", "is_dense": True})
    (row,) = read(tables.profiles_table([profile]).to_csv())
    assert (row["acceptance_dense"], row["acceptance_sparse"], row["speedup"]) == ("2.0", "", "")
    (sparse,) = read(tables.profiles_table([examples.seed(store)]).to_csv())
    assert (sparse["acceptance_sparse"], sparse["speedup_low"]) == ("2.1", "1.04")
    assert sparse["hardware"] == "test cpu, 2 threads"


def test_guards_and_depth_tables(store: Store) -> None:
    guards = read(tables.guards_table(search()).to_csv())
    assert guards == [
        {"guard": "distinct_2", "dense": "0.9", "sparse": "0.88"},
        {"guard": "longest_repeat", "dense": "3.0", "sparse": "3.5"},
    ]
    examples.seed(store)
    detail = load_overview(store, Question()).detail
    assert detail is not None
    assert read(tables.depth_table(detail).to_csv()) == [
        {"k": "1", "dense": "0.5", "sparse": "0.75"},
        {"k": "2", "dense": "0.0", "sparse": "0.25"},
    ]


def test_text_that_a_spreadsheet_would_run_is_made_harmless() -> None:
    table = Table(
        "t", "T", (Column("text", "text"),), tuple((text_cell(t),) for t in ("=1+1", "a=1", "-x"))
    )
    assert [row["text"] for row in read(table.to_csv())] == ["'=1+1", "a=1", "'-x"]
