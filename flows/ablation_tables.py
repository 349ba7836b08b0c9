"""Ablation curves of a benchmark as tables."""

from __future__ import annotations

from collections.abc import Iterator

from flows.views import TableView, number, percent, ratio
from tasks.ablation import (
    Curve,
    EqualOverhead,
    at_equal_overhead,
    by_row,
    overhead_curves,
    sweep_curves,
)
from tasks.benchmark_report import BenchmarkReport

_COLUMNS = (
    "hit rate (HR)",
    "length on hits (AL)",
    "efficiency (DE)",
    "nodes/step",
    "draft share",
    "mean speed-up of domains",
)


def ablation_tables(report: BenchmarkReport) -> Iterator[TableView]:
    """Yield a table per curve; none unless methods of the ablation were measured."""
    for curve in sweep_curves(report):
        yield _curve_table(f"Ablation: {curve.sweep.title}", curve)
        if not curve.sweep.is_numeric:
            yield _row_table(report, curve)
    curves = overhead_curves(report)
    for curve in curves:
        yield _curve_table(f"Overhead: {curve.sweep.title}", curve)
    compared = at_equal_overhead(curves)
    if compared:
        yield _equal_table(curves[0].sweep.title, compared)


def _curve_table(title: str, curve: Curve) -> TableView:
    return TableView(
        title,
        (curve.sweep.axis, *_COLUMNS),
        tuple(
            (
                point.label,
                percent(point.method.figures.hit_rate),
                number(point.method.figures.acceptance_length_on_hits),
                number(point.method.figures.decoding_efficiency),
                number(point.nodes_per_step, 1),
                percent(point.method.figures.draft_share),
                ratio(point.method.mean_speedup),
            )
            for point in curve.points
        ),
    )


def _row_table(report: BenchmarkReport, curve: Curve) -> TableView:
    """Decoding efficiency of every choice, domain by domain."""
    rows = by_row(report, curve)
    return TableView(
        f"Efficiency (DE) by domain: {curve.sweep.title}",
        ("domain", *(point.label for point in curve.points)),
        tuple(
            (row, *(number(each.decoding_efficiency if each else None) for each in figures))
            for row, figures in rows.items()
        ),
    )


def _equal_table(reference: str, compared: tuple[EqualOverhead, ...]) -> TableView:
    return TableView(
        f"{reference} at equal overhead: ratio of decoding efficiencies",
        ("over", "ratio", "compared at nodes/step"),
        tuple(
            (each.name, f"{each.ratio:.3f}x", ", ".join(f"{nodes:.0f}" for nodes in each.nodes))
            for each in compared
        ),
    )
