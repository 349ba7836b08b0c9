"""Decoding efficiency at equal overhead: methods compared where they process equally many nodes.

A method at several settings is a set of points: nodes per step beside the root, and decoding
efficiency (DE). What it reaches within a budget of nodes is read off the upper front of these
points, so that a poor setting of a method is never held against it.

Source: Progressive Tree Drafting, tables 4 and 5, with a front in place of one setting per method.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

import numpy as np

from specdec_core.bench.metrics import count_acceptance
from specdec_core.bench.statistics import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Floats,
    IntervalEstimate,
    percentiles,
)
from specdec_core.errors import MeasurementError
from specdec_core.randomness import resampling_generator
from specdec_core.records import StepTrace

Overhead = Literal["total", "drafting"]
"""Which nodes count: drafting and candidate nodes (Dft + Ver), or drafting nodes alone (Dft)."""


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Sums over the verify steps of every request of one benchmark, requests in one order.

    Attributes:
        steps: Verify steps.
        hits: Steps that offered a draft.
        accepted: Draft tokens that entered the output.
        drafting: Nodes that rode along to draft.
        candidates: Nodes verified.
    """

    steps: tuple[int, ...]
    hits: tuple[int, ...]
    accepted: tuple[int, ...]
    drafting: tuple[int, ...]
    candidates: tuple[int, ...]

    @classmethod
    def of(cls, traces: Iterable[StepTrace]) -> StepCounts:
        """Return the counts of some requests.

        Raises:
            MeasurementError: if there are none, or one of them has no step.
        """
        counts = [count_acceptance([trace]) for trace in traces]
        if not counts or not all(each.num_steps for each in counts):
            raise MeasurementError(
                f"{len(counts)} requests, of which some have no verify step: give at least one, "
                "each with an output longer than one token"
            )
        return cls(
            tuple(each.num_steps for each in counts),
            tuple(each.num_hits for each in counts),
            tuple(each.num_accepted for each in counts),
            tuple(each.num_drafting for each in counts),
            tuple(each.num_drafted for each in counts),
        )


Setting = Sequence[StepCounts]
"""One setting of a method: its counts on each benchmark, benchmarks in one order."""


def best_within(points: Iterable[tuple[float, float]], budget: float) -> float | None:
    """Return the decoding efficiency that a method reaches with at most `budget` nodes per step.

    Between points of the front, those that no cheaper point equals, it is interpolated; beyond the
    last one it stays: a method need not use its whole budget.

    Args:
        points: Nodes per step and decoding efficiency of each setting.
        budget: Nodes per step.

    Returns:
        None below the cheapest point.
    """
    nodes: list[float] = []
    efficiencies: list[float] = []
    for cost, efficiency in sorted(points, key=lambda point: (point[0], -point[1])):
        if not efficiencies or efficiency > efficiencies[-1]:
            nodes.append(cost)
            efficiencies.append(efficiency)
    if not nodes or budget < nodes[0]:
        return None
    return float(np.interp(budget, nodes, efficiencies))


def mean_points(settings: Sequence[Setting], overhead: Overhead) -> list[tuple[float, float]]:
    """Return nodes per step and decoding efficiency of each setting, means over benchmarks."""
    return _points(_stacked(settings), overhead)


def ratios_within(
    method: Sequence[Setting],
    other: Sequence[Setting],
    budgets: Sequence[float],
    overhead: Overhead,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> tuple[IntervalEstimate, ...]:
    """Return how many times the other's efficiency a method reaches within each budget.

    Means over benchmarks are compared. Requests are drawn in pairs inside their benchmark, the same
    for all settings of both methods; every resample has fronts of its own. A budget that a resample
    cannot compare, one of the methods lying above it, counts at both ends of the interval.

    Args:
        method: Settings of one method.
        other: Settings of the other, on the same benchmarks and requests.
        budgets: Nodes per step.
        overhead: Which nodes count.
        bootstrap: How resamples are drawn.

    Returns:
        One estimate per budget, and last that of their mean.

    Raises:
        MeasurementError: if there are no budgets or settings, requests are not paired, or a method
            has no setting within a budget.
    """
    num_requests = _check_pairs([*method, *other])
    if not budgets or not method or not other:
        raise MeasurementError("nothing to compare: give budgets, and settings of both methods")
    mine, others = _stacked(method), _stacked(other)
    estimates = _ratios(_points(mine, overhead), _points(others, overhead), budgets)
    if np.isnan(estimates).any():
        raise MeasurementError(
            f"a method has no setting within {min(budgets):g} nodes per step: raise the budgets "
            "or measure smaller settings"
        )
    generator = resampling_generator(bootstrap.seed)
    drawn = np.empty((bootstrap.num_resamples, len(budgets) + 1))
    for row in drawn:
        picks = [generator.integers(num, size=num) for num in num_requests]
        first, second = (
            [counts[..., pick] for counts, pick in zip(side, picks, strict=True)]
            for side in (mine, others)
        )
        row[:] = _ratios(_points(first, overhead), _points(second, overhead), budgets)
    return tuple(
        IntervalEstimate(
            float(estimate),
            *percentiles(column, bootstrap.confidence),
            bootstrap.confidence,
            sum(num_requests),
        )
        for estimate, column in zip(estimates, drawn.T, strict=True)
    )


def _ratios(
    mine: Sequence[tuple[float, float]],
    others: Sequence[tuple[float, float]],
    budgets: Sequence[float],
) -> Floats:
    """Return the ratio within each budget and their mean; nan where there is none."""
    found = []
    for budget in budgets:
        first, second = best_within(mine, budget), best_within(others, budget)
        found.append(np.nan if first is None or second is None else first / second)
    return np.asarray([*found, np.mean(found)])


def _stacked(settings: Sequence[Setting]) -> list[Floats]:
    """Return the counts of all settings, [setting, field, request] for each benchmark."""
    return [
        np.asarray([astuple(counts) for counts in benchmark], dtype=np.float64)
        for benchmark in zip(*settings, strict=True)
    ]


def _points(benchmarks: Sequence[Floats], overhead: Overhead) -> list[tuple[float, float]]:
    """Return the point of every setting from its pooled counts on each benchmark."""
    sums = np.asarray([counts.sum(axis=-1) for counts in benchmarks])  # [benchmark, setting, field]
    steps, _, accepted, drafting, candidates = np.moveaxis(sums, -1, 0)
    nodes = drafting if overhead == "drafting" else drafting + candidates
    means = ((nodes / steps).mean(axis=0), (1 + accepted / steps).mean(axis=0))
    return list(zip(*(mean.tolist() for mean in means), strict=True))


def _check_pairs(settings: Sequence[Setting]) -> list[int]:
    """Return the number of requests of each benchmark, the same for all settings."""
    sizes = [[len(counts.steps) for counts in setting] for setting in settings]
    for other in sizes[1:]:
        if other != sizes[0]:
            raise MeasurementError(
                f"{sizes[0]} requests per benchmark cannot be paired with {other}: measure all "
                "settings on the same requests"
            )
    return sizes[0] if sizes else []
