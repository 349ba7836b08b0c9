"""Guesses at which sets of a level are good, to evaluate these first; they decide nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from specdec_core.search.objectives import Tolerances
from specdec_core.search.outcome import Ranked
from specdec_core.skip import SkipConfig, SkipUnit, UnitKind

Gains = tuple[float, float]
"""Relative gains of acceptance and metric over dense."""


def middle_first(skips: Iterable[SkipConfig]) -> list[SkipConfig]:
    """Return sets of one unit, those in the middle of the model first: they tend to cost least.

    Source: ours; the skip sets that TSS reports leave out middle layers more often than others.
    """
    found = list(skips)
    layers = sorted({unit.layer for skip in found for unit in skip.units})
    centre = layers[0] + layers[-1] if layers else 0
    return sorted(found, key=lambda skip: (abs(2 * skip.units[0].layer - centre), skip.sort_key))


def promising_first(
    skips: Iterable[SkipConfig], singles: Mapping[SkipUnit, Gains], tolerances: Tolerances
) -> list[SkipConfig]:
    """Return sets in the order of what their units gained alone, summed.

    Those whose sums keep the tolerances come first, by the sum of both; then the others by how
    much they miss them. A unit without gains of its own counts as the worst known.

    Args:
        skips: Sets of one level.
        singles: Gains of single units, from level 1.
        tolerances: What a feasible set keeps.
    """
    worst = min(singles.values(), key=sum, default=(0.0, 0.0))

    def guess(skip: SkipConfig) -> tuple[float, float, tuple[tuple[int, int], ...]]:
        known = [gains for unit in skip.units for gains in _gains(unit, singles, worst)]
        acceptance, metric = sum(g[0] for g in known), sum(g[1] for g in known)
        short = tolerances.violation(acceptance, metric, has_metric=True)
        return short, -(acceptance + metric), skip.sort_key

    return sorted(skips, key=guess)


def single_gains(members: Sequence[Ranked]) -> dict[SkipUnit, Gains]:
    """Return the gains of the members that leave one unit out."""
    return {
        member.skip.units[0]: (member.gain_acceptance, member.gain_metric)
        for member in members
        if len(member.skip.units) == 1
    }


def _gains(unit: SkipUnit, singles: Mapping[SkipUnit, Gains], worst: Gains) -> list[Gains]:
    """Return the gains of a unit, or of both halves of a block that was no candidate itself."""
    if unit in singles or unit.kind is not UnitKind.BLOCK:
        return [singles.get(unit, worst)]
    halves = (SkipUnit(unit.layer, UnitKind.ATTENTION), SkipUnit(unit.layer, UnitKind.MLP))
    return [singles.get(half, worst) for half in halves]
