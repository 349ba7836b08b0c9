"""The bounding benchmark on a stored search of the table: same outcome, counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bound_replay import Item, Table
from benchmarks.bounding import figures_of, overall
from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.records import SampleResult, StepTrace
from specdec_core.search.bounds import PartialCounts
from tests.table_evaluator import Control
from tests.unit.tasks.inline_search import search


def test_an_item_counts_the_tokens_of_its_steps() -> None:
    sample = SampleResult(
        item_id="i",
        prompt_tokens=3,
        token_ids=(5, 6, 7, 8),
        text="",
        answer="",
        useful_tokens=0,
        finish_reason="length",
        score=0.5,
        raw_score=0.5,
        trace=StepTrace(drafted=(1, 0), depth=(1, 0), accepted=(1, 0), committed=(2, 1)),
    )
    assert Item.of(sample) == Item(PartialCounts(1, 3, 2, 1, 0.5), 4)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    settings = Settings(home=tmp_path / "home", cache=tmp_path / "cache", threads=1)
    control = Control(tmp_path)
    with Store.open(settings.resolved_database_url) as store:
        report = search(settings, store, control, num_selection=8, max_new_tokens=25, batch_size=8)
        return Table.of(store, report)


def test_every_replay_finds_the_same_and_counts_what_it_decoded(table: Table) -> None:
    figures = figures_of(table)
    # Dense, four single blocks and the pairs with 2 or 3; all outputs have 25 tokens.
    assert figures["sets"] == 1 + 4 + 5
    assert figures["tokens_of_all_sets"] == 10 * 8 * 25
    assert figures["forwards_of_all_sets_by_batch"]["4"] == 10 * 2 * 25
    assert {row["part_size"] for row in figures["bounded"]} == {1, 2, 4}
    for row in figures["bounded"]:
        assert row["tokens"] % 25 == 0
        assert 0 <= row["tokens_saved"] < 1
        parts = row["forwards"] / 25
        assert row["tokens"] == parts * row["part_size"] * 25
        least = parts / row["workers"] * 25
        assert least <= row["clock"] <= row["forwards"]
    finest = [row for row in figures["bounded"] if row["part_size"] == 1]
    # 4 and 2+4 lose 0.2 of a metric of 0.5 and are certainly infeasible after 6 or 7 of 8 items.
    assert all(row["sets_dropped"] >= 2 for row in finest)
    (same,) = [r for r in overall([figures]) if (r["part_size"], r["order"]) == (4, "model")][:1]
    (row,) = [
        r
        for r in figures["bounded"]
        if (r["part_size"], r["order"], r["workers"]) == (4, "model", 1)
    ]
    assert same["tokens_saved"] == pytest.approx(row["tokens_saved"])
