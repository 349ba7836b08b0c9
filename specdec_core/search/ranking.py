"""Order of configurations: gains over dense, Pareto dominance, level order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from specdec_core.errors import ConfigError
from specdec_core.skip import SkipConfig

DIGITS = 9
"""Decimal places that comparisons look at, so that summation order cannot change a result."""
SMALL_METRIC = 1e-3
"""Below this dense metric a relative change means nothing and the plain difference is used."""


class Candidate(Protocol):
    """What ordering needs to know of a scored configuration."""

    @property
    def skip(self) -> SkipConfig:
        """Units left out."""
        ...

    @property
    def objectives(self) -> tuple[float, ...]:
        """What is maximised; dense is 0 in each."""
        ...

    @property
    def is_feasible(self) -> bool:
        """Whether the gains reach their tolerances."""
        ...

    @property
    def violation(self) -> float:
        """Summed shortfall below the tolerances."""
        ...

    @property
    def gain(self) -> float:
        """Sum of the objectives."""
        ...


C = TypeVar("C", bound=Candidate)


def relative_gains(
    score: tuple[float, float | None], dense: tuple[float, float | None]
) -> tuple[float, float]:
    """Relative gains of (acceptance, metric) over the dense target, rounded to 1e-9.

    Raises:
        ConfigError: if dense acceptance is not positive, or a metric is missing on one side.
    """
    if dense[0] <= 0:
        raise ConfigError(f"dense acceptance length {dense[0]} must be positive")
    gain_acceptance = score[0] / dense[0] - 1.0
    if dense[1] is None:
        return round(gain_acceptance, DIGITS), 0.0
    if score[1] is None:
        raise ConfigError("a configuration has no metric although the dense target has one")
    small = dense[1] < SMALL_METRIC
    gain_metric = score[1] - dense[1] if small else score[1] / dense[1] - 1.0
    return round(gain_acceptance, DIGITS), round(gain_metric, DIGITS)


def dominates(first: Candidate, second: Candidate) -> bool:
    """True if `first` is at least as good in every objective and better in one."""
    pairs = list(zip(first.objectives, second.objectives, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def non_dominated(members: Sequence[C]) -> list[C]:
    """Return the members that no other one dominates, in the given order."""
    return [member for member in members if not any(dominates(other, member) for other in members)]


def non_domination_ranks(members: Sequence[C]) -> list[list[C]]:
    """Split members into successive Pareto fronts, best first."""
    fronts: list[list[C]] = []
    left = list(members)
    while left:
        front = non_dominated(left)
        fronts.append(front)
        chosen = {id(member) for member in front}
        left = [member for member in left if id(member) not in chosen]
    return fronts


def order_level(members: Iterable[C]) -> list[C]:
    """Return the members of one level best first, as `TssSearch` describes."""
    everyone = list(members)
    feasible = [member for member in everyone if member.is_feasible]
    ordered = [
        member
        for front in non_domination_ranks(feasible)
        for member in sorted(front, key=lambda m: (-m.gain, m.skip.sort_key))
    ]
    infeasible = [member for member in everyone if not member.is_feasible]
    return ordered + sorted(infeasible, key=lambda m: (m.violation, -m.gain, m.skip.sort_key))
