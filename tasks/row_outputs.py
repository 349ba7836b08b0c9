"""Output length, stop rate and intervals beside the scores of each configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from db.schemas import Interval
from db.store import Store
from specdec_core.bench.statistics import relative_change_of_pooled_ratios
from specdec_core.errors import MeasurementError
from specdec_core.records import SampleResult
from tasks.heldout import acceptance_columns, metric_change
from tasks.heldout_costs import to_interval
from tasks.report import ConfigurationRow, SearchReport


def with_outputs(store: Store, report: SearchReport) -> SearchReport:
    """Return the report with output length and stop rate in every row that was decoded."""
    known: dict[str, dict[str, Any]] = {}

    def filled(row: ConfigurationRow) -> ConfigurationRow:
        # A loss is taken without decoding, so there is no output to measure.
        if row.key is None or row.loss is not None:
            return row
        if row.key not in known:
            summary = store.evaluations.summary(row.key)
            known[row.key] = {}
            if summary is not None:
                known[row.key] = {
                    "mean_output_tokens": summary.mean_output_tokens,
                    "stop_rate": summary.stop_rate,
                }
        return row.model_copy(update=known[row.key])

    return _map_rows(report, filled)


def with_intervals(store: Store, report: SearchReport) -> SearchReport:
    """Return the report with paired intervals beside the gains that anything rests on.

    Those are the rows of the front and of every frontier, the answer and what was compared: few
    selection items cannot rank sets that differ little, and the intervals say how little.
    """
    named = {row.key for row in (*report.front, report.answer, report.compared) if row}
    dense = store.evaluations.samples(report.dense.key) if report.dense.key else ()
    known: dict[str, dict[str, Any]] = {}

    def filled(row: ConfigurationRow) -> ConfigurationRow:
        wanted = row.is_frontier or row.key in named
        if row.key is None or not row.skip or row.acceptance is None or not wanted:
            return row
        if row.key not in known:
            known[row.key] = gain_intervals(dense, store.evaluations.samples(row.key))
        return row.model_copy(update=known[row.key])

    return _map_rows(report, filled)


def gain_intervals(
    dense: tuple[SampleResult, ...], sparse: tuple[SampleResult, ...]
) -> dict[str, Interval]:
    """Return the intervals of both gains, paired by item, as fields of a row; those that exist."""
    found: dict[str, Interval] = {}
    if not dense or len(dense) != len(sparse):
        return found
    try:
        columns = acceptance_columns(dense), acceptance_columns(sparse)
        acceptance = relative_change_of_pooled_ratios(*columns)
        found["gain_acceptance_interval"] = to_interval(acceptance)
    except MeasurementError:  # outputs of one token take no step
        pass
    metric = metric_change(dense, sparse)
    if metric.change is not None and metric.kind == "relative":
        found["gain_metric_interval"] = metric.change
    return found


def _map_rows(
    report: SearchReport, filled: Callable[[ConfigurationRow], ConfigurationRow]
) -> SearchReport:
    levels = [
        level.model_copy(update={"rows": tuple(map(filled, level.rows))}) for level in report.levels
    ]
    return report.model_copy(
        update={
            "dense": filled(report.dense),
            "answer": filled(report.answer),
            "compared": filled(report.compared) if report.compared else None,
            "levels": tuple(levels),
            "ablation": tuple(map(filled, report.ablation)),
            "front": tuple(map(filled, report.front)),
        }
    )
