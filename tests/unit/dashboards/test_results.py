"""A search in the shape of the paper's tables, and its negative control."""

from __future__ import annotations

import csv
import io

from dashboards.results import control_table, results_table
from dashboards.summary import SearchSummary
from dashboards.tables import ablation_table
from dashboards.views import Table
from tests.unit.dashboards import examples


def search(**changes: object) -> SearchSummary:
    return SearchSummary.model_validate(examples.report("r1", **changes).model_dump())


def rows(table: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.to_csv())))


def test_results_are_a_row_of_dense_and_a_row_of_the_compared_set() -> None:
    dense, sparse = rows(results_table(search()))
    assert (dense["skip"], dense["acceptance"], dense["tokens_per_s"]) == ("", "2.0", "40.0")
    assert (sparse["skip"], sparse["acceptance"], sparse["speedup_high"]) == (
        "a1,a3",
        "2.1",
        "1.15",
    )
    # Two attention halves of 18 layers.
    assert float(sparse["sparsity"]) == 1 / 18
    assert (sparse["better"], sparse["same"], sparse["worse"]) == ("3", "60", "1")
    assert results_table(search(heldout=None)).rows == ()


def test_single_units_show_how_long_outputs_are() -> None:
    longer = examples.A1.model_copy(update={"mean_output_tokens": 48.0, "stop_rate": 0.25})
    (row,) = rows(ablation_table(search(ablation=(longer,))))
    assert (row["mean_output_tokens"], row["stop_rate"]) == ("48.0", "0.25")


def test_the_control_has_a_row_for_each_figure() -> None:
    acceptance, metric = rows(control_table(search()))
    assert (acceptance["figure"], acceptance["change"]) == ("acceptance length", "-0.2")
    assert (metric["dense"], metric["sparse"], metric["verdict"]) == ("0.5", "0.25", "harmed")
    assert control_table(search(negative_control=None)).rows == ()
