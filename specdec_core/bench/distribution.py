"""Whether draws follow a law: Pearson's chi-square test with rare outcomes pooled."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from specdec_core.errors import MeasurementError

Outcome = TypeVar("Outcome", bound=Hashable)


@dataclass(frozen=True, slots=True)
class DistributionTest:
    """Result of a chi-square test.

    Attributes:
        statistic: Sum over cells of (observed - expected)^2 / expected.
        num_degrees: Degrees of freedom, cells less one.
        p_value: Chance of a statistic at least this large if the law is right.
        num_draws: Draws counted.
        total_variation: Half the sum over all outcomes of |observed share - probability|.
    """

    statistic: float
    num_degrees: int
    p_value: float
    num_draws: int
    total_variation: float

    def is_passed(self, level: float = 1e-3) -> bool:
        """Return whether the draws do not contradict the law at this level of significance."""
        return self.p_value >= level


def distribution_test(
    counts: Mapping[Outcome, int],
    probabilities: Mapping[Outcome, float],
    *,
    min_expected: float = 5.0,
) -> DistributionTest:
    """Test whether outcomes were drawn independently with these probabilities.

    Outcomes are single tokens, pairs of tokens or anything that can be a key. Those expected
    fewer than `min_expected` times are pooled, rarest first, until every cell is expected that
    often. One draw that cannot happen settles the matter: the statistic is infinite.

    Args:
        counts: How often each outcome was drawn; absent ones never.
        probabilities: The law; absent outcomes cannot happen. Sums to 1 within 1e-6.
        min_expected: Least expected count of a cell, above 0.

    Raises:
        MeasurementError: if nothing was drawn, the law does not sum to 1, or it has one cell only
            (nothing is left to test).

    Source: Pearson 1900; pooling by Cochran's rule of five.
    """
    num_draws = sum(counts.values())
    total = math.fsum(probabilities.values())
    if num_draws == 0 or abs(total - 1.0) > 1e-6:
        raise MeasurementError(
            f"{num_draws} draws against a law that sums to {total}: give at least one draw, and "
            "all probabilities"
        )
    outcomes = sorted(probabilities, key=lambda outcome: probabilities[outcome])
    distance = 0.5 * math.fsum(
        abs(counts.get(outcome, 0) / num_draws - probabilities.get(outcome, 0.0))
        for outcome in {*probabilities, *counts}
    )
    cells = _pool(
        [(num_draws * probabilities[o], counts.get(o, 0)) for o in outcomes if probabilities[o]],
        min_expected,
    )
    if len(cells) < 2:
        raise MeasurementError(
            f"{num_draws} draws leave one cell of at least {min_expected} expected: draw more"
        )
    is_impossible = any(num and not probabilities.get(outcome) for outcome, num in counts.items())
    statistic = math.fsum((seen - expected) ** 2 / expected for expected, seen in cells)
    if is_impossible:
        statistic = math.inf
    degrees = len(cells) - 1
    return DistributionTest(
        statistic, degrees, chi_square_tail(statistic, degrees), num_draws, distance
    )


def chi_square_tail(statistic: float, num_degrees: int) -> float:
    """Return the chance that a chi-square variable with `num_degrees` exceeds `statistic`.

    Exact finite sums of the upper incomplete gamma function: for an even number of degrees powers
    alone, for an odd number a normal tail and half-integer powers.

    Args:
        statistic: At least 0, may be infinite.
        num_degrees: At least 1.
    """
    half = statistic / 2
    if math.isinf(half):
        return 0.0
    if half == 0.0:
        return 1.0
    is_odd = num_degrees % 2
    tail = math.erfc(math.sqrt(half)) if is_odd else 0.0
    power = 0.5 if is_odd else 0.0
    while power < num_degrees / 2:
        tail += math.exp(power * math.log(half) - half - math.lgamma(power + 1))
        power += 1
    return min(tail, 1.0)


def _pool(cells: list[tuple[float, int]], min_expected: float) -> list[tuple[float, int]]:
    """Return (expected, observed) with the rarest cells joined; cells come rarest first."""
    pooled: list[tuple[float, int]] = []
    expected, seen = 0.0, 0
    for own_expected, own_seen in cells:
        expected, seen = expected + own_expected, seen + own_seen
        if expected >= min_expected:
            pooled.append((expected, seen))
            expected, seen = 0.0, 0
    if expected and pooled:
        last_expected, last_seen = pooled.pop()
        pooled.append((last_expected + expected, last_seen + seen))
    return pooled or [(expected, seen)]
