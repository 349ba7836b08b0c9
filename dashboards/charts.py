"""From records to plotly figures; colours of text and grid are set by the page's theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dashboards.comparison import Comparison, comparisons
from dashboards.queries import Depth
from dashboards.summary import Configuration, SearchSummary
from db.schemas import METRIC_TITLES, Interval

ACCEPTANCE, METRIC = "#2f7fd1", "#d9772b"
OUTSIDE, NEUTRAL, ANSWER = "#9aa3af", "#7b8794", "#c2377e"
TOLERANCE = "#c0392b"
_OUTSIDE_OPACITY = 0.4
_MIN_HALF_RANGE = 0.02


def ablation_figure(search: SearchSummary) -> go.Figure:
    """Bars of both relative changes for each single unit, in the order of the model.

    Units outside the tolerances are pale; dashed lines are the tolerances.
    """
    scored = [row for row in search.ablation if row.gain_acceptance is not None]
    series = [("acceptance", ACCEPTANCE, [row.gain_acceptance for row in scored])]
    limits = [search.config.epsilon_acceptance]
    if search.has_metric:
        series.append((search.metric_name, METRIC, [row.gain_metric for row in scored]))
        limits.append(search.config.epsilon_metric)
    figure = make_subplots(rows=len(series), cols=1, shared_xaxes=True, vertical_spacing=0.08)
    labels = [escape(row.label) for row in scored]
    opacity = [1.0 if row.is_feasible else _OUTSIDE_OPACITY for row in scored]
    for place, ((name, colour, values), limit) in enumerate(
        zip(series, limits, strict=True), start=1
    ):
        bars = go.Bar(
            x=labels,
            y=values,
            name=f"{name} change",
            marker={"color": colour, "opacity": opacity},
            hovertemplate=f"skip %{{x}}: {name} %{{y:+.1%}}<extra></extra>",
        )
        figure.add_trace(bars, row=place, col=1)
        _limit_line(figure, limit, place)
        figure.update_yaxes(title_text=f"{name} change", tickformat="+.0%", row=place, col=1)
    figure.update_xaxes(title_text="unit left out (0-based layer)", row=len(series), col=1)
    # Names such as 3 are units, not places on a numeric axis.
    figure.update_xaxes(type="category")
    finish(figure, height=170 * len(series) + 90)
    return figure.update_layout(showlegend=False, bargap=0.25)


def front_figure(search: SearchSummary) -> go.Figure:
    """Every scored configuration by its two gains, with tolerances, front and answer.

    Where the domain has no metric the units skipped take its place on the horizontal axis.
    """
    scored = [row for row in search.configurations if row.gain_acceptance is not None]
    on_front = {row.skip for row in search.front}
    inside = [row for row in scored if row.is_feasible and row.skip not in on_front]
    outside = [row for row in scored if not row.is_feasible]
    front = sorted(search.front, key=lambda row: (_horizontal(search, row), row.skip))
    figure = go.Figure(
        [
            _points(search, outside, "outside tolerance", color=OUTSIDE, size=7, opacity=0.6),
            _points(search, inside, "within tolerance", color=ACCEPTANCE, size=9),
            _points(search, front, "Pareto front", is_line=True, color=METRIC, size=12),
            _points(search, [search.dense], "dense", color=NEUTRAL, size=13, symbol="diamond"),
            _points(
                search, [search.answer], "answer", color=ANSWER, size=20, symbol="star-open",
                line={"width": 2.5},
            ),
        ]
    )  # fmt: skip
    limits = search.config
    dash = {"color": TOLERANCE, "dash": "dash", "width": 1}
    figure.add_hline(y=limits.epsilon_acceptance, line=dash)
    if search.has_metric:
        figure.add_vline(x=limits.epsilon_metric, line=dash)
        figure.update_xaxes(title_text=f"{search.metric_name} change", tickformat="+.0%")
    else:
        figure.update_xaxes(title_text="units skipped", dtick=1)
    figure.update_yaxes(title_text="acceptance change", tickformat="+.0%")
    finish(figure, height=430)
    return figure


def interval_figure(search: SearchSummary) -> go.Figure:
    """Estimates with intervals as changes relative to dense; one line per figure.

    The last line is the metric on the selection items, which chose the skip set and therefore
    flatter it. A plain difference of scores has another unit and is left to the table.
    """
    lines = [
        (row.figure.split(",")[0], _relative(row), row.tolerance)
        for row in comparisons(search)
        if row.change is not None and row.kind != "difference"
    ]
    chosen = search.selection_metric_change
    if chosen is not None and search.selection_metric_change_kind == "relative":
        lines.append((f"{METRIC_TITLES[search.metric_name]} on selection items", chosen, None))
    figure = go.Figure()
    for name, interval, limit in reversed(lines):
        figure.add_trace(_interval_trace(escape(name), interval))
        if limit is not None:
            figure.add_trace(_limit_mark(escape(name), limit))
    figure.add_vline(x=0.0, line={"color": NEUTRAL, "width": 1})
    figure.update_xaxes(title_text="change against dense", tickformat="+.0%")
    ends = [abs(end) for _, interval, _ in lines for end in (interval.low, interval.high)]
    half = 1.1 * max([*ends, _MIN_HALF_RANGE])
    low = min([0.0, *(interval.low for _, interval, _ in lines)]) - 0.1 * half
    figure.update_xaxes(range=[min(low, -_MIN_HALF_RANGE), half])
    finish(figure, height=70 + 44 * max(len(lines), 2))
    return figure.update_layout(showlegend=False)


def depth_figure(depth: Depth) -> go.Figure:
    """Share of drafting steps that accepted at least k tokens, dense beside sparse."""
    figure = go.Figure(
        [
            _depth_bars("dense", NEUTRAL, depth.dense, depth.num_steps_dense),
            _depth_bars("sparse", ACCEPTANCE, depth.sparse, depth.num_steps_sparse),
        ]
    )
    figure.update_xaxes(title_text="draft tokens accepted, at least", type="category")
    figure.update_yaxes(title_text="share of steps with a draft", tickformat=".0%")
    finish(figure, height=300)
    return figure


def _depth_bars(name: str, colour: str, shares: Sequence[float], num_steps: int) -> go.Bar:
    return go.Bar(
        x=[str(k) for k in range(1, len(shares) + 1)],
        y=list(shares),
        name=f"{name} ({num_steps} steps)",
        marker={"color": colour},
        hovertemplate=f"{name}: %{{y:.1%}} accepted %{{x}} or more<extra></extra>",
    )


def to_json(figure: go.Figure) -> str:
    """Return the figure for the page's script."""
    text: str = figure.to_json()
    return text


def _relative(row: Comparison) -> Interval:
    """The change of a row as a relative one: a ratio of 1.1 is +10 %."""
    assert row.change is not None
    if row.kind == "relative":
        return row.change
    return Interval(
        estimate=row.change.estimate - 1.0,
        low=row.change.low - 1.0,
        high=row.change.high - 1.0,
        confidence=row.change.confidence,
    )


def _interval_trace(name: str, interval: Interval) -> go.Scatter:
    colour = NEUTRAL
    if interval.low > 0.0:
        colour = ACCEPTANCE
    elif interval.high < 0.0:
        colour = METRIC
    text = f"{interval.estimate:+.1%} ({interval.low:+.1%} to {interval.high:+.1%})"
    return go.Scatter(
        x=[interval.estimate],
        y=[name],
        name=name,
        mode="markers",
        marker={"color": colour, "size": 10},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [interval.high - interval.estimate],
            "arrayminus": [interval.estimate - interval.low],
            "color": colour,
            "thickness": 2.5,
            "width": 6,
        },
        hovertemplate=f"%{{y}}: {text}<extra></extra>",
    )


def _limit_mark(name: str, limit: float) -> go.Scatter:
    return go.Scatter(
        x=[limit],
        y=[name],
        name="tolerance",
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 18, "color": TOLERANCE, "line": {"width": 2}},
        hovertemplate="tolerance %{x:+.1%}<extra></extra>",
    )


def _points(
    search: SearchSummary,
    rows: Sequence[Configuration],
    name: str,
    *,
    is_line: bool = False,
    **marker: object,
) -> go.Scatter:
    return go.Scatter(
        x=[_horizontal(search, row) for row in rows],
        y=[row.gain_acceptance or 0.0 for row in rows],
        name=name,
        mode="lines+markers" if is_line else "markers",
        line={"color": METRIC, "width": 1.5, "shape": "hv"} if is_line else None,
        marker=marker,
        text=[escape(row.label) for row in rows],
        customdata=[row.level for row in rows],
        hovertemplate=(
            "skip %{text} (level %{customdata})<br>acceptance %{y:+.1%}"
            + (f"<br>{search.metric_name} %{{x:+.1%}}" if search.has_metric else "")
            + "<extra></extra>"
        ),
    )


def _horizontal(search: SearchSummary, row: Configuration) -> float:
    return (row.gain_metric or 0.0) if search.has_metric else float(row.num_units)


def _limit_line(figure: go.Figure, limit: float, place: int) -> None:
    line = {"color": TOLERANCE, "dash": "dash", "width": 1}
    figure.add_hline(y=limit, line=line, row=place, col=1)


def finish(figure: go.Figure, height: int) -> None:
    """Give a figure its height in pixels and what all have alike."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 16, "t": 16, "b": 48},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="closest",
    )
    figure.update_xaxes(automargin=True, title_standoff=10)
    figure.update_yaxes(automargin=True, title_standoff=12)
