"""Strategies side by side and tolerances in turn: what pages read of a stored sweep, its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from pydantic import BaseModel, ConfigDict, Field

from dashboards.summary import Configuration
from dashboards.views import (
    Cell,
    Table,
    change_cells,
    flag_cell,
    named_columns,
    number_cell,
    percent_cell,
    share_cell,
    text_cell,
)
from db.schemas import HeldoutComparison, Interval, MetricName
from specdec_core.skip import SkipConfig

SWEEP_KINDS = {"tss-compare": "strategy", "tss-sensitivity": "tolerance"}
"""Kinds of sweeps, and what tells their searches apart."""
_COLOUR, _NEUTRAL = "#2f7fd1", "#7b8794"


class _View(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SweepVariant(_View):
    """One search of the sweep."""

    name: str
    answer: Configuration
    sparsity: float
    is_within_tolerances: bool
    num_evaluations: int
    num_evaluated: int
    num_memoised: int
    heldout: HeldoutComparison | None = None
    holds: bool | None = None
    reason: str = ""


class SweepCost(_View):
    """What a sweep of tolerances adds to its base search."""

    num_base: int
    num_extra: int
    in_searches: float
    limit: float


class SweepSummary(_View):
    """The result of a comparison of strategies or of a sweep of tolerances."""

    kind: str
    headline: str
    domain: str
    target: str
    num_layers: int = Field(ge=1)
    selection_ids: tuple[str, ...] = ()
    heldout_ids: tuple[str, ...] = ()
    metric_name: MetricName = "metric"
    dense: Configuration
    dense_heldout: HeldoutComparison | None = None
    variants: tuple[SweepVariant, ...]
    cost: SweepCost | None = None
    notes: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What tells the searches apart."""
        return SWEEP_KINDS[self.kind]


def read_sweep(summary: Mapping[str, Any]) -> SweepSummary | None:
    """Return the report stored with a sweep, None where there is none yet.

    Raises:
        ValidationError: if it is not the report of a sweep.
    """
    return SweepSummary.model_validate(summary) if summary else None


def answers_table(sweep: SweepSummary) -> Table:
    """What each search answers on held-out items, and the evaluations it needs.

    Source: TSS (its tables of strategies and of tolerances).
    """
    columns = named_columns(
        name=sweep.what,
        skip="skip set",
        sparsity="sparsity",
        acceptance="acceptance",
        metric=sweep.metric_name,
        tokens_per_s="tokens/s",
        speedup="speed over dense",
        speedup_low="95 % low",
        speedup_high="95 % high",
        holds="holds",
        num_evaluations="evaluations",
        num_evaluated="new",
        num_memoised="stored",
    )
    caption = f"Answers on {len(sweep.heldout_ids)} held-out items"
    rows = (_dense_cells(sweep), *(_answer_cells(variant) for variant in sweep.variants))
    return Table("answers", caption, columns, rows)


def answers_selection_table(sweep: SweepSummary) -> Table:
    """What each answer reached on the items that chose it."""
    columns = named_columns(
        name=sweep.what,
        skip="skip set",
        acceptance="acceptance",
        metric=sweep.metric_name,
        gain_acceptance="acceptance change",
        gain_metric=f"{sweep.metric_name} change",
        is_within_tolerances="within tolerances",
    )
    caption = f"The same on the {len(sweep.selection_ids)} selection items"
    rows = tuple(
        (
            text_cell(variant.name),
            Cell(variant.answer.skip, variant.answer.label),
            number_cell(variant.answer.acceptance),
            number_cell(variant.answer.metric, 4),
            percent_cell(variant.answer.gain_acceptance),
            percent_cell(None if variant.answer.metric is None else variant.answer.gain_metric),
            flag_cell(variant.is_within_tolerances, "yes", "no"),
        )
        for variant in sweep.variants
    )
    return Table("answers-selection", caption, columns, rows)


def changes_figure(sweep: SweepSummary) -> go.Figure | None:
    """Changes against dense with their intervals, a line per search; None without any."""
    compared = [(variant.name, variant.heldout) for variant in sweep.variants if variant.heldout]
    if not compared:
        return None
    panels: dict[str, list[Interval | None]] = {
        "acceptance change": [found.acceptance_change for _, found in compared],
        f"{sweep.metric_name} change": [
            found.metric_change if found.metric_change_kind == "relative" else None
            for _, found in compared
        ],
        "speed over dense, - 1": [_less_one(found.speedup) for _, found in compared],
    }
    names = [name for name, _ in compared]
    shown = {title: intervals for title, intervals in panels.items() if any(intervals)}
    figure = make_subplots(rows=1, cols=len(shown), shared_yaxes=True, horizontal_spacing=0.04)
    for place, (title, intervals) in enumerate(shown.items(), start=1):
        figure.add_trace(_points(names, intervals), row=1, col=place)
        figure.add_vline(x=0.0, line={"color": _NEUTRAL, "width": 1}, row=1, col=place)
        figure.update_xaxes(title_text=title, tickformat="+.0%", row=1, col=place)
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=names[::-1], automargin=True
    )
    return figure.update_layout(
        template="none",
        showlegend=False,
        height=120 + 34 * len(names),
        margin={"l": 60, "r": 16, "t": 16, "b": 64},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )


SWEEP_TABLES: Mapping[str, Callable[[SweepSummary], Table]] = {
    "answers": answers_table,
    "answers-selection": answers_selection_table,
}


def _points(names: list[str], intervals: list[Interval | None]) -> go.Scatter:
    shown = [(name, each) for name, each in zip(names, intervals, strict=True) if each is not None]
    return go.Scatter(
        x=[each.estimate for _, each in shown],
        y=[name for name, _ in shown],
        mode="markers",
        marker={"color": _COLOUR, "size": 9},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.estimate for _, each in shown],
            "arrayminus": [each.estimate - each.low for _, each in shown],
            "color": _COLOUR,
            "thickness": 2,
        },
        hovertemplate="%{y}: %{x:+.1%}<extra></extra>",
    )


def _less_one(interval: Interval) -> Interval:
    values = interval.model_dump()
    ends = {name: values[name] - 1.0 for name in ("estimate", "low", "high")}
    return Interval(**(values | ends))


def _dense_cells(sweep: SweepSummary) -> tuple[Cell, ...]:
    found = sweep.dense_heldout
    return (
        text_cell(None),
        Cell("", "dense"),
        share_cell(0.0),
        number_cell(found.acceptance_dense if found else None),
        number_cell(found.metric_dense if found else None, 4),
        number_cell(found.tokens_per_s_dense if found else None, 1),
        *change_cells(None, "ratio"),
        text_cell(None),
        *(number_cell(None),) * 3,
    )


def _answer_cells(variant: SweepVariant) -> tuple[Cell, ...]:
    found = variant.heldout
    holds = text_cell(None) if variant.holds is None else flag_cell(variant.holds, "yes", "no")
    counts = (variant.num_evaluations, variant.num_evaluated, variant.num_memoised)
    return (
        text_cell(variant.name),
        Cell(variant.answer.skip, SkipConfig.parse(variant.answer.skip).label),
        share_cell(variant.sparsity),
        number_cell(found.acceptance_sparse if found else None),
        number_cell(found.metric_sparse if found else None, 4),
        number_cell(found.tokens_per_s_sparse if found else None, 1),
        *change_cells(found.speedup if found else None, "ratio"),
        holds,
        *(number_cell(count, 0) for count in counts),
    )
