"""Tables of one search or of several beside each other, in the shape of the paper's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from db.schemas import Interval, MetricName
from flows.views import (
    ABSENT,
    TableView,
    change,
    number,
    percent,
    quality,
    quality_change,
    ratio,
    share,
)
from specdec_core.skip import SkipConfig
from tasks.joint import DrafterAcceptance
from tasks.report import ConfigurationRow, SearchReport
from tasks.search_plots import names_of

RESULT_COLUMNS = (
    "domain",
    "skip",
    "sparsity",
    "acceptance",
    "acceptance change",
    "metric",
    "metric change",
    "tokens/s",
    "speed over dense",
    "over dense without drafter",
    "result",
)
CASE_COLUMNS = ("domain", "skip", "items", "better", "same", "worse")


def result_table(reports: Sequence[SearchReport]) -> TableView:
    """Dense and compared set of each search on its held-out items, changes with their intervals.

    Source: TSS (its table of results per domain).
    """
    rows: list[tuple[str, ...]] = []
    for name, report in zip(names_of(reports), reports, strict=True):
        rows += _result_rows(name, report)
    return TableView("Results on held-out items", RESULT_COLUMNS, tuple(rows))


def case_count_table(reports: Sequence[SearchReport]) -> TableView:
    """How many held-out items each compared set answers better, as well and worse than dense.

    Source: TSS (its tables of cases).
    """
    rows = []
    for name, report in zip(names_of(reports), reports, strict=True):
        counts = report.case_counts
        if counts is not None:
            found = (counts.better, counts.same, counts.worse)
            rows.append((name, _compared(report).skip, str(sum(found)), *map(str, found)))
    return TableView("Scores of held-out items against dense", CASE_COLUMNS, tuple(rows))


def control_table(reports: Sequence[SearchReport]) -> TableView:
    """The compared set of each search in a domain that it was not searched for."""
    found = [
        (name, report.negative_control)
        for name, report in zip(names_of(reports), reports, strict=True)
        if report.negative_control is not None
    ]
    return TableView(
        "Negative control: the same set in another domain",
        (
            "searched for",
            "control",
            "skip",
            "items",
            "acceptance change",
            "metric change",
            "same output, share of tokens",
            "verdict",
        ),
        tuple(
            (
                name,
                control.domain,
                control.skip,
                str(len(control.item_ids)),
                change(control.acceptance_change),
                quality_change(
                    control.metric_change, control.metric_change_kind, control.metric_name
                ),
                percent(control.same_beginning.estimate),
                control.verdict,
            )
            for name, control in found
        ),
    )


def ablation_table(report: SearchReport) -> TableView:
    """What leaving out each single unit does, in the order of the model, after the dense target."""
    title = f"Single units, by layer, on {len(report.selection_ids)} selection items"
    return configuration_table(title, (report.dense, *report.ablation), report.metric_name)


def joint_ablation_table(reports: Sequence[SearchReport]) -> TableView:
    """Single units of several searches of one target: changes of acceptance and metric by domain.

    Source: TSS (its figure of single layers).
    """
    by_unit = [{row.skip: row for row in report.ablation} for report in reports]
    units = sorted({skip for rows in by_unit for skip in rows}, key=_order)
    names = names_of(reports)
    columns = [
        f"{name}: {what}"
        for name, report in zip(names, reports, strict=True)
        for what in ("acceptance", report.metric_name)
    ]
    return TableView(
        f"Single units of {reports[0].target}: change against dense on selection items",
        ("unit", *columns),
        tuple(
            (skip, *(text for rows in by_unit for text in _gains(rows.get(skip)))) for skip in units
        ),
    )


def drafter_table(rows: Iterable[DrafterAcceptance]) -> TableView:
    """Acceptance by drafter on dense and sparse target.

    Source: TSS (its figure of drafters).
    """
    return TableView(
        "Acceptance length by drafter",
        (
            "target",
            "domain",
            "drafter",
            "skip",
            "items",
            "dense",
            "sparse",
            "change [95% interval]",
            "metric, dense",
            "metric, sparse",
        ),
        tuple(
            (
                row.target,
                row.domain,
                row.drafter,
                row.skip,
                str(row.num_items),
                number(row.dense),
                number(row.sparse),
                change(row.change),
                number(row.metric_dense, 4),
                number(row.metric_sparse, 4),
            )
            for row in rows
        ),
    )


def configuration_table(
    title: str, rows: Iterable[ConfigurationRow], metric_name: MetricName = "metric"
) -> TableView:
    """Some configurations with their selection figures, in the given order."""
    return TableView(
        title,
        (
            "skip",
            "acceptance",
            metric_name,
            "acceptance change",
            f"{metric_name} change",
            "output tokens",
            "stop rate",
            "state",
        ),
        tuple(_configuration_row(row) for row in rows),
    )


def _result_rows(name: str, report: SearchReport) -> list[tuple[str, ...]]:
    found, compared = report.heldout, _compared(report)
    if found is None:
        nothing = f"{report.verdict}; nothing was compared"
        return [(name, compared.skip or "dense", *(ABSENT,) * 8, nothing)]
    dense = (
        name,
        "dense",
        percent(0.0),
        number(found.acceptance_dense),
        ABSENT,
        quality(found.metric_dense, found.metric_name),
        ABSENT,
        number(found.tokens_per_s_dense, 1),
        *(ABSENT,) * 3,
    )
    sparse = (
        name,
        compared.skip,
        percent(SkipConfig.parse(compared.skip).sparsity(report.num_layers)),
        number(found.acceptance_sparse),
        change(found.acceptance_change),
        quality(found.metric_sparse, found.metric_name),
        quality_change(found.metric_change, found.metric_change_kind, found.metric_name),
        number(found.tokens_per_s_sparse, 1),
        ratio(found.speedup),
        ratio(found.speedup_over_autoregressive),
        report.verdict,
    )
    return [dense, sparse]


def _compared(report: SearchReport) -> ConfigurationRow:
    return report.compared or report.answer


def _configuration_row(row: ConfigurationRow) -> tuple[str, ...]:
    return (
        row.skip or "dense",
        number(row.acceptance),
        number(row.metric, 4),
        _gain(row.gain_acceptance, row.gain_acceptance_interval),
        _gain(row.gain_metric, row.gain_metric_interval),
        number(row.mean_output_tokens, 1),
        percent(row.stop_rate),
        _state(row),
    )


def _gain(gain: float | None, interval: Interval | None) -> str:
    return share(gain) if interval is None else change(interval)


def _gains(row: ConfigurationRow | None) -> tuple[str, str]:
    if row is None:
        return ABSENT, ABSENT
    return share(row.gain_acceptance), share(None if row.metric is None else row.gain_metric)


def _order(skip: str) -> tuple[tuple[int, int], ...]:
    return SkipConfig.parse(skip).sort_key


def _state(row: ConfigurationRow) -> str:
    """Say whether a configuration keeps the tolerances, or why nothing is known of it."""
    if row.error is not None:
        return f"failed: {row.error}"
    if row.dropped is not None:
        return f"dropped {row.dropped}"
    if row.loss is not None:
        return f"loss {row.loss:.4f} nats per token"
    if row.level == 0:
        return "reference"
    return "within tolerance" if row.is_feasible else f"short by {row.violation or 0.0:.1%}"
