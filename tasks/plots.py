"""Plots of a benchmark report as files; every figure in them is also in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from db.schemas import Interval
from tasks.ablation import Curve, by_row, overhead_curves, sweep_curves
from tasks.benchmark_report import BenchmarkReport, MethodOverall
from tasks.plot_style import (
    NEUTRAL,
    Plot,
    draw_interval,
    draw_legend,
    new_figure,
    new_lines,
    style_of,
    write_plots,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PHASES = {"draft": "#c05621", "forward": "#2b6cb0", "verify": "#2f855a", "commit": NEUTRAL}
_MAX_METHODS = 10
_MAX_POSITIONS = 12


def plot_report(report: BenchmarkReport, folder: Path) -> tuple[Path, ...]:
    """Write the plots that the report has figures for; return their files.

    Args:
        report: The report.
        folder: Where files go; made if something is written.
    """
    return write_plots(benchmark_plots(report), folder)


def benchmark_plots(report: BenchmarkReport) -> Iterator[Plot]:
    """Yield the plots that the report has figures for."""
    drafting = [method for method in report.overall if method.mean_speedup is not None]
    if not drafting:
        return
    yield "speedup", lambda: _speedups(report, drafting)
    if len(drafting) <= _MAX_METHODS:
        yield "acceptance-by-position", lambda: _positions(drafting)
    yield "run-time", lambda: _run_time(report.overall)
    for curve in sweep_curves(report):
        yield f"ablation-{curve.sweep.name}", lambda curve=curve: _sweep(curve)  # type: ignore[misc]  # bound now
        if not curve.sweep.is_numeric and len({cell.domain for cell in report.cells}) > 1:
            yield (
                f"ablation-{curve.sweep.name}-by-row",
                lambda curve=curve: _sweep_by_row(report, curve),  # type: ignore[misc]  # bound now
            )
    curves = overhead_curves(report)
    if curves:
        yield "equal-overhead", lambda: _overhead(curves)


def _speedups(report: BenchmarkReport, drafting: Sequence[MethodOverall]) -> Figure:
    """Speedup with interval, by row and method; with many methods, over all rows only."""
    if len(drafting) > _MAX_METHODS:
        return _mean_speedups(report, drafting)
    groups: list[tuple[str, dict[str, Interval | None]]] = []
    for row in dict.fromkeys(cell.domain for cell in report.cells):
        cells = (cell for cell in report.cells if cell.domain == row and cell.figures)
        groups.append((row, {c.drafter: c.figures.speedup for c in cells if c.figures}))
    groups.append(("mean over rows", {m.drafter: m.mean_speedup for m in drafting}))
    figure, axes = new_figure(height=1.2 + 0.24 * len(groups) * (len(drafting) + 1))
    ticks = []
    for place, (_, speedups) in enumerate(groups):
        for number, method in enumerate(drafting):
            y = place * (len(drafting) + 1) + number
            interval = speedups.get(method.drafter)
            if interval is not None:
                label = method.method if place == len(groups) - 1 else None
                draw_interval(axes, interval, y, style_of(number), label)
        ticks.append(place * (len(drafting) + 1) + (len(drafting) - 1) / 2)
    axes.set_yticks(ticks, [name for name, _ in groups])
    _speedup_axis(axes, report)
    draw_legend(axes)
    return figure


def _mean_speedups(report: BenchmarkReport, drafting: Sequence[MethodOverall]) -> Figure:
    """Mean speedup over rows with interval, a method per line."""
    figure, axes = new_lines([method.method for method in drafting])
    for y, method in enumerate(drafting):
        assert method.mean_speedup is not None
        draw_interval(axes, method.mean_speedup, y, style_of(0), None)
    _speedup_axis(axes, report)
    return figure


def _speedup_axis(axes: Any, report: BenchmarkReport) -> None:
    axes.axvline(1.0, color=NEUTRAL, linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("speed-up over autoregressive decoding, 95% interval over items")
    _title(axes, report)


def _positions(drafting: Sequence[MethodOverall]) -> Figure:
    """Share of the steps with a draft that accepted at least k tokens."""
    figure, axes = new_figure()
    for number, method in enumerate(drafting):
        shares = method.figures.position_acceptance[:_MAX_POSITIONS]
        axes.plot(range(1, len(shares) + 1), shares, label=method.method, **style_of(number))
    axes.set_xlabel("draft tokens accepted, at least")
    axes.set_ylabel("share of steps with a draft")
    axes.set_ylim(bottom=0.0)
    draw_legend(axes)
    return figure


def _run_time(methods: Sequence[MethodOverall]) -> Figure:
    """Milliseconds per step by phase, and per token beside them."""
    timed = [m for m in methods if m.figures.phases is not None and m.figures.num_steps]
    figure, axes = new_lines([method.method for method in timed])
    left = [0.0] * len(timed)
    for phase, colour in _PHASES.items():
        widths = [
            1000 * getattr(m.figures.phases, phase) / (m.figures.num_steps * m.figures.num_repeats)
            for m in timed
        ]
        axes.barh(range(len(timed)), widths, left=left, color=colour, label=phase)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for y, (method, end) in enumerate(zip(timed, left, strict=True)):
        per_token = 1000 / method.figures.tokens_per_s if method.figures.tokens_per_s else 0.0
        axes.text(end, y, f" {per_token:.1f} ms/token", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlabel("milliseconds per step")
    draw_legend(axes)
    return figure


def _sweep(curve: Curve) -> Figure:
    """Efficiency, length on hits and hit rate over the values of one option."""
    figure, axes = new_figure()
    places = _places(curve)
    figures = [point.method.figures for point in curve.points]
    efficiency = [point.efficiency for point in curve.points]
    on_hits = [each.acceptance_length_on_hits or float("nan") for each in figures]
    joined = {} if curve.sweep.is_numeric else {"linestyle": ""}
    axes.plot(places, efficiency, label="decoding efficiency (DE)", **style_of(0) | joined)
    axes.plot(places, on_hits, label="acceptance length on hits (AL)", **style_of(1) | joined)
    axes.set_ylabel("tokens per step")
    axes.set_xticks(places, [point.label for point in curve.points])
    axes.set_xlabel(curve.sweep.axis)
    axes.set_title(curve.sweep.title, fontsize=10)
    rates = axes.twinx()
    hit_rates = [each.hit_rate for each in figures]
    rates.plot(places, hit_rates, label="hit rate (HR)", **style_of(2) | joined)
    rates.set_ylabel("share of steps with a draft")
    rates.set_ylim(0.0, 1.05)
    draw_legend(axes)
    return figure


def _sweep_by_row(report: BenchmarkReport, curve: Curve) -> Figure:
    """Decoding efficiency row by row, such as by category of the questions."""
    rows = by_row(report, curve)
    figure, axes = new_figure(height=1.6 + 0.35 * len(rows))
    for number, point in enumerate(curve.points):
        values = [figures[number] for figures in rows.values()]
        shown = [each.decoding_efficiency if each else None for each in values]
        heights = [float("nan") if value is None else value for value in shown]
        axes.plot(
            heights, range(len(rows)), label=point.label, **style_of(number) | {"linestyle": ""}
        )
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel("decoding efficiency, tokens per step")
    axes.set_title(curve.sweep.title, fontsize=10)
    draw_legend(axes)
    return figure


def _overhead(curves: Sequence[Curve]) -> Figure:
    """Decoding efficiency over the nodes that a step processes."""
    figure, axes = new_figure()
    for number, curve in enumerate(curves):
        points = sorted(curve.points, key=lambda point: point.nodes_per_step)
        x = [point.nodes_per_step for point in points]
        axes.plot(x, [p.efficiency for p in points], label=curve.sweep.title, **style_of(number))
        for point in points:
            where = (point.nodes_per_step, point.efficiency)
            axes.annotate(point.label, where, fontsize=7, textcoords="offset points", xytext=(3, 4))
    axes.set_xlabel("drafting and candidate nodes per step")
    axes.set_ylabel("decoding efficiency, tokens per step")
    draw_legend(axes)
    return figure


def _places(curve: Curve) -> list[float]:
    if curve.sweep.is_numeric:
        return [float(point.label) for point in curve.points]
    return [float(index) for index in range(len(curve.points))]


def _title(axes: Any, report: BenchmarkReport) -> None:
    sampling = report.config.sampling or "greedy"
    axes.set_title(f"{report.config.target}, batch 1, {sampling}", fontsize=10)
