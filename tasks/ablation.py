"""Curves of an ablation from a benchmark report: the methods of a sweep that were measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from db.cells import CellFigures
from specdec_core.bench.overhead import best_within
from specdec_core.config.ablation import OVERHEAD_CURVES, PTD_SWEEPS, Sweep
from specdec_core.config.drafters import format_drafter, parse_drafter
from tasks.benchmark_report import BenchmarkReport, MethodOverall


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One measured method of a sweep.

    Attributes:
        label: Its value of the swept option.
        method: The method over all rows.
    """

    label: str
    method: MethodOverall

    @property
    def nodes_per_step(self) -> float:
        """Nodes that a step processes beside its root: drafting and candidate nodes."""
        figures = self.method.figures
        return (figures.drafting_nodes_per_step or 0.0) + (figures.candidate_nodes_per_step or 0.0)

    @property
    def efficiency(self) -> float:
        """Decoding efficiency, tokens per step."""
        return self.method.figures.decoding_efficiency or 1.0


@dataclass(frozen=True, slots=True)
class Curve:
    """A sweep and those of its points that were measured, at least two."""

    sweep: Sweep
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class EqualOverhead:
    """How one method compares with another where both process equally many nodes per step.

    Attributes:
        name: The other method.
        nodes: Where they were compared, nodes per step.
        ratio: Decoding efficiency over the other's there, both as read off their fronts, mean over
            these places.
    """

    name: str
    nodes: tuple[float, ...]
    ratio: float


def sweep_curves(report: BenchmarkReport) -> tuple[Curve, ...]:
    """Return the curves of one option at a time."""
    return _curves(report, PTD_SWEEPS)


def overhead_curves(report: BenchmarkReport) -> tuple[Curve, ...]:
    """Return the curves of methods at several sizes, PTD's first; empty unless there are two."""
    curves = _curves(report, OVERHEAD_CURVES)
    has_reference = bool(curves) and curves[0].sweep is OVERHEAD_CURVES[0]
    return curves if has_reference and len(curves) > 1 else ()


def at_equal_overhead(curves: Sequence[Curve]) -> tuple[EqualOverhead, ...]:
    """Compare the first curve with each other one, at those of its points inside the first's range.

    Curves without such a point are left out.

    Source: Progressive Tree Drafting, table 4, with fronts in place of matched settings.
    """
    if not curves:
        return ()
    mine = _points(curves[0])
    nodes = [cost for cost, _ in mine]
    found = []
    for other in curves[1:]:
        points = _points(other)
        where = tuple(cost for cost, _ in points if min(nodes) <= cost <= max(nodes))
        pairs = [(best_within(mine, cost), best_within(points, cost)) for cost in where]
        ratios = [first / second for first, second in pairs if first and second]
        if ratios:
            found.append(EqualOverhead(other.sweep.title, where, sum(ratios) / len(ratios)))
    return tuple(found)


def by_row(report: BenchmarkReport, curve: Curve) -> Mapping[str, tuple[CellFigures | None, ...]]:
    """Return the figures of a curve's points row by row, None where a cell failed."""
    figures = {(cell.domain, cell.drafter): cell.figures for cell in report.cells}
    rows = dict.fromkeys(cell.domain for cell in report.cells)
    return {
        row: tuple(figures.get((row, point.method.drafter)) for point in curve.points)
        for row in rows
    }


def _curves(report: BenchmarkReport, sweeps: Sequence[Sweep]) -> tuple[Curve, ...]:
    measured = {method.drafter: method for method in report.overall}
    found = []
    for sweep in sweeps:
        named = ((label, format_drafter(parse_drafter(text))) for label, text in sweep.points)
        points = tuple(CurvePoint(label, measured[m]) for label, m in named if m in measured)
        if len(points) > 1:
            found.append(Curve(sweep, points))
    return tuple(found)


def _points(curve: Curve) -> list[tuple[float, float]]:
    return [(point.nodes_per_step, point.efficiency) for point in curve.points]
