"""Plots of searches and sweeps; every figure in them is also in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from db.schemas import HeldoutComparison, Interval, MetricName
from specdec_core.search.ranking import SMALL_METRIC
from specdec_core.skip import SkipConfig, SkipUnit, UnitKind
from tasks.plot_style import (
    NEUTRAL,
    Plot,
    draw_interval,
    draw_legend,
    new_figure,
    new_panels,
    style_of,
)
from tasks.report import ConfigurationRow, SearchReport
from tasks.sweep_report import SweepReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS = {UnitKind.BLOCK: "blocks", UnitKind.ATTENTION: "attention halves", UnitKind.MLP: "MLP"}
_DASHED = {"color": NEUTRAL, "linestyle": "--", "linewidth": 1}
_PALE, _INSIDE, _FRONT, _ANSWER = "#a0aec0", "#2b6cb0", "#c05621", "#b83280"

Measure = Callable[[SearchReport, ConfigurationRow], float | None]


def search_plots(report: SearchReport) -> Iterator[Plot]:
    """Yield the plots of one search that it has figures for."""
    if any(row.acceptance is not None for row in report.ablation):
        yield "ablation", lambda: ablation_figure([report])
    if any(row.gain_acceptance is not None for row in _scored(report)):
        yield "pareto", lambda: pareto_figure(report)
    found = report.heldout
    if found is not None:
        label = (report.compared or report.answer).skip
        yield "heldout", lambda: heldout_figure([(label, found)])


def sweep_plots(report: SweepReport) -> Iterator[Plot]:
    """Yield the plot of a sweep: each answer against dense on held-out items."""
    compared = [(v.name, v.answer.skip, v.heldout) for v in report.variants]
    rows = [(f"{name}: {skip}", found) for name, skip, found in compared if found is not None]
    if rows:
        yield "heldout", lambda: heldout_figure(rows)


def names_of(reports: Sequence[SearchReport]) -> list[str]:
    """Return what tells searches apart: the domain, and whatever else is not the same in all."""
    parts = [
        (r.config.domain, r.target, r.config.drafter, r.config.strategy, r.config.units)
        for r in reports
    ]
    varies = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    return [", ".join(text for i, text in enumerate(each) if i == 0 or varies[i]) for each in parts]


def ablation_figure(reports: Sequence[SearchReport]) -> Figure:
    """What leaving out each single unit does, by layer: one series per search and kind of unit.

    Source: TSS (its figure of single layers); output length and stop rate tell repetition, which
    is easy to draft, from a gain.
    """
    panels = [
        (title, measure)
        for title, measure in _MEASURES
        if any(measure(r, row) is not None for r in reports for row in r.ablation)
    ]
    layers = sorted({_unit(row).layer for r in reports for row in r.ablation})
    figure, all_axes = new_panels(
        len(panels), width=max(7.5, 1.5 + 0.26 * len(layers)), height=1.2 + 1.5 * len(panels)
    )
    for number, (report, label, rows) in enumerate(_series(reports)):
        for axes, (_, measure) in zip(all_axes, panels, strict=True):
            points = [(_unit(row).layer, measure(report, row)) for row in rows]
            shown = [(layer, value) for layer, value in points if value is not None]
            axes.plot(
                [layer for layer, _ in shown],
                [value for _, value in shown],
                label=label if axes is all_axes[0] else None,
                **style_of(number),
            )
    for axes, (title, _) in zip(all_axes, panels, strict=True):
        axes.set_ylabel(title, fontsize=8)
        if "/ dense" in title:
            axes.axhline(1.0, color=NEUTRAL, linewidth=1)
        else:
            axes.set_ylim(-0.05, 1.05)
    if len(reports) == 1:
        _tolerances(all_axes, panels, reports[0])
    all_axes[-1].set_xticks(layers)
    all_axes[-1].tick_params(axis="x", labelsize=7)
    all_axes[-1].set_xlabel("layer that the unit left out belongs to, 0-based")
    num_items = sorted({len(report.selection_ids) for report in reports})
    all_axes[0].set_title(f"{_targets(reports)}: {_either(num_items)} selection items", fontsize=10)
    draw_legend(all_axes[0])
    return figure


def pareto_figure(report: SearchReport) -> Figure:
    """Every scored set by its change of acceptance and of metric, with front and answer.

    Where the domain has no metric, the number of units left out takes its place.
    """
    figure, axes = new_figure(height=5.0)
    front = {row.skip for row in report.front}
    rows = [row for row in _scored(report) if row.gain_acceptance is not None]
    outside = [row for row in rows if not row.is_feasible]
    inside = [row for row in rows if row.is_feasible and row.skip not in front]
    groups: tuple[tuple[str, Sequence[ConfigurationRow], dict[str, Any]], ...] = (
        ("outside the tolerances", outside, {"color": _PALE, "s": 18}),
        ("within", inside, {"color": _INSIDE, "s": 26}),
        ("front", report.front, {"color": _FRONT, "s": 44}),
        ("dense", [report.dense], {"color": NEUTRAL, "marker": "D", "s": 50}),
        (
            f"answer: {report.answer.skip or 'dense'}",
            [report.answer],
            {"facecolors": "none", "edgecolors": _ANSWER, "s": 150, "linewidths": 2},
        ),
    )
    for label, members, style in groups:
        if members:
            y = [row.gain_acceptance for row in members]
            axes.scatter([_across(report, row) for row in members], y, label=label, **style)
    for where, text in _front_labels(report).items():
        axes.annotate(text, where, fontsize=7, textcoords="offset points", xytext=(5, 4))
    if report.config.epsilon_acceptance > -1.0:
        axes.axhline(report.config.epsilon_acceptance, **_DASHED)
    if report.dense.metric is None:
        axes.set_xlabel("units left out")
    else:
        if report.config.epsilon_metric > -1.0:
            axes.axvline(report.config.epsilon_metric, **_DASHED)
        axes.set_xlabel(f"{report.metric_name} change against dense")
        axes.xaxis.set_major_formatter("{x:+.0%}")
    axes.set_ylabel("acceptance change against dense")
    axes.yaxis.set_major_formatter("{x:+.0%}")
    title = f"{report.config.domain} on {report.target}: {len(rows)} sets, "
    axes.set_title(f"{title}{len(report.selection_ids)} selection items", fontsize=10)
    draw_legend(axes)
    return figure


def heldout_figure(rows: Sequence[tuple[str, HeldoutComparison]]) -> Figure:
    """Changes against dense on held-out items with their intervals, one line per comparison.

    A change of the metric that is a plain difference has another unit and is left to the table.
    """
    longest = max(len(name) for name, _ in rows)
    panels: dict[str, list[Interval | None]] = {
        "acceptance change": [found.acceptance_change for _, found in rows],
        **{f"{name} change": _metric_changes(rows, name) for name in get_args(MetricName)},
        "speed over dense": [found.speedup for _, found in rows],
    }
    shown = {title: changes for title, changes in panels.items() if any(changes)}
    figure, all_axes = new_panels(
        len(shown), width=7.5 + 0.065 * longest, height=1.5 + 0.3 * len(rows), is_stacked=False
    )
    for axes, (title, changes) in zip(all_axes, shown.items(), strict=True):
        for y, interval in enumerate(changes):
            if interval is not None:
                draw_interval(axes, interval, y, style_of(0), None)
        middle = 1.0 if title.startswith("speed") else 0.0
        axes.axvline(middle, color=NEUTRAL, linewidth=1)
        axes.set_xlabel(title, fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
        axes.xaxis.set_major_formatter("{x:.2f}x" if middle else "{x:+.0%}")
    all_axes[0].set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    all_axes[0].set_ylim(len(rows) - 0.5, -0.5)
    items = sorted({found.num_items for _, found in rows})
    figure.suptitle(f"{_either(items)} held-out items, 95% intervals", fontsize=10)
    return figure


def _metric_changes(
    rows: Sequence[tuple[str, HeldoutComparison]], name: MetricName
) -> list[Interval | None]:
    """Relative changes of the metric where it has this name."""
    return [
        found.metric_change
        if (found.metric_name, found.metric_change_kind) == (name, "relative")
        else None
        for _, found in rows
    ]


def _scored(report: SearchReport) -> Iterator[ConfigurationRow]:
    """Every configuration of every level."""
    return (row for level in report.levels for row in level.rows)


def _across(report: SearchReport, row: ConfigurationRow) -> float:
    if report.dense.metric is None:
        return float(len(SkipConfig.parse(row.skip)))
    return row.gain_metric or 0.0


def _front_labels(report: SearchReport) -> dict[tuple[float, float], str]:
    """Names of the sets at each point of the front."""
    labels: dict[tuple[float, float], str] = {}
    for row in report.front:
        where = (_across(report, row), row.gain_acceptance or 0.0)
        text = row.skip or "dense"
        labels[where] = f"{labels[where]}; {text}" if where in labels else text
    return labels


def _acceptance_ratio(_report: SearchReport, row: ConfigurationRow) -> float | None:
    return None if row.gain_acceptance is None else 1.0 + row.gain_acceptance


def _metric_ratio(report: SearchReport, row: ConfigurationRow) -> float | None:
    # Where the dense metric is about 0 the stored gain is a difference, no ratio.
    small = (report.dense.metric or 0.0) < SMALL_METRIC
    if row.gain_metric is None or small or report.metric_name != "metric":
        return None
    return 1.0 + row.gain_metric


def _agreement(report: SearchReport, row: ConfigurationRow) -> float | None:
    return row.metric if report.metric_name == "agreement" else None


def _length_ratio(report: SearchReport, row: ConfigurationRow) -> float | None:
    dense = report.dense.mean_output_tokens
    return row.mean_output_tokens / dense if row.mean_output_tokens and dense else None


def _stop_rate(_report: SearchReport, row: ConfigurationRow) -> float | None:
    return row.stop_rate


_MEASURES: tuple[tuple[str, Measure], ...] = (
    ("acceptance / dense", _acceptance_ratio),
    ("metric / dense", _metric_ratio),
    ("agreement with dense", _agreement),
    ("output length / dense", _length_ratio),
    ("stop rate", _stop_rate),
)


def _series(
    reports: Sequence[SearchReport],
) -> Iterator[tuple[SearchReport, str, list[ConfigurationRow]]]:
    """Single units of each search by their kind, named as far as needed."""
    kinds = {_unit(row).kind for report in reports for row in report.ablation}
    for report, name in zip(reports, names_of(reports), strict=True):
        for kind, text in _KINDS.items():
            rows = [row for row in report.ablation if _unit(row).kind is kind]
            if rows:
                yield report, f"{name}, {text}" if len(kinds) > 1 else name, rows


def _unit(row: ConfigurationRow) -> SkipUnit:
    (unit,) = SkipConfig.parse(row.skip).units
    return unit


def _tolerances(
    all_axes: Sequence[Any], panels: Sequence[tuple[str, Measure]], report: SearchReport
) -> None:
    limits = {
        "acceptance / dense": report.config.epsilon_acceptance,
        "metric / dense": report.config.epsilon_metric,
        "agreement with dense": report.config.epsilon_metric,
    }
    for axes, (title, _) in zip(all_axes, panels, strict=True):
        if limits.get(title, -1.0) > -1.0:
            axes.axhline(1.0 + limits[title], **_DASHED)


def _targets(reports: Sequence[SearchReport]) -> str:
    return ", ".join(dict.fromkeys(report.target for report in reports))


def _either(counts: Sequence[int]) -> str:
    """A number, or the range of several."""
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
