"""What the score of a skip set can still become once some of its items are decoded."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_core.search.outcome import Score, ScoreBounds

_ROUNDING = 1e-12
"""More than the sum of a suite's scores loses in floating point, far less than comparisons see."""


@dataclass(frozen=True, slots=True)
class ItemLimits:
    """What no single item can exceed."""

    max_new_tokens: int
    """Longest output, tokens, at least 1; its first token comes from the prefill."""
    max_path: int | None = None
    """Most draft tokens on one path; None where the output's limit alone bounds it."""

    @property
    def tokens_in_steps(self) -> int:
        """Most tokens that verify steps can commit."""
        return self.max_new_tokens - 1

    @property
    def tokens_per_step(self) -> int:
        """Most tokens that one verify step can commit: a path and the target's own token."""
        longest = self.tokens_in_steps if self.max_path is None else self.max_path
        return 1 + longest


@dataclass(frozen=True, slots=True)
class PartialCounts:
    """Sums over the items of one skip set that are decoded; two of them add up."""

    num_items: int = 0
    num_committed: int = 0
    """Tokens that entered outputs in verify steps."""
    num_steps: int = 0
    num_scored: int = 0
    """Items with a metric, agreement included."""
    score_sum: float = 0.0

    def __add__(self, other: PartialCounts) -> PartialCounts:
        return PartialCounts(
            self.num_items + other.num_items,
            self.num_committed + other.num_committed,
            self.num_steps + other.num_steps,
            self.num_scored + other.num_scored,
            self.score_sum + other.score_sum,
        )

    @property
    def score(self) -> Score:
        """What the items so far reached."""
        acceptance = self.num_committed / self.num_steps if self.num_steps else 1.0
        return Score(acceptance, self.score_sum / self.num_scored if self.num_scored else None)


def score_bounds(
    counts: PartialCounts, num_items: int, limits: ItemLimits, *, metric_name: str | None
) -> ScoreBounds:
    """Return the tightest bounds that hold whatever the items not yet decoded do.

    The metric is a mean of values in [0, 1], so that R items left are all 0 at worst and all 1
    at best. Acceptance is the ratio of all committed tokens to all steps, 1 without a step. Of an
    item left is known only that its steps commit t <= T - 1 tokens together, each of them
    between 1 and P (T the longest output, P the longest path and one).

    - Least: the ratio never is below 1, so that a step that commits one token never raises it,
      and one that commits more never lowers it below that. Hence all items left take T - 1 steps
      of one token.
    - Most: no ratio is above P, so that a step of P tokens never lowers it. Every item left fits
      q = (T - 1) // P of them, and has r = (T - 1) % P tokens left for one more step. That
      step raises a ratio below r and lowers one above; adding it does not carry a ratio across r,
      so it pays either for all items left or for none.

    Args:
        counts: Sums over the items decoded so far.
        num_items: All items of the evaluation.
        limits: What no item can exceed.
        metric_name: What the items are scored by, in [0, 1]; None where they are not.

    Source: ours; bounding a mean by its range is the textbook step of racing algorithms.
    """
    left = num_items - counts.num_items
    most_scored = counts.num_scored + left
    lowest: float | None = None
    highest: float | None = None
    if metric_name is not None:
        lowest = counts.score_sum / most_scored - _ROUNDING
        highest = (counts.score_sum + left) / most_scored + _ROUNDING
    return ScoreBounds(
        counts.num_items,
        num_items,
        Score(_least_acceptance(counts, left, limits), lowest),
        Score(_most_acceptance(counts, left, limits), highest),
        metric_name or "metric",
    )


def _least_acceptance(counts: PartialCounts, left: int, limits: ItemLimits) -> float:
    added = left * limits.tokens_in_steps
    steps = counts.num_steps + added
    return (counts.num_committed + added) / steps if steps else 1.0


def _most_acceptance(counts: PartialCounts, left: int, limits: ItemLimits) -> float:
    whole, rest = divmod(limits.tokens_in_steps, limits.tokens_per_step)
    steps = counts.num_steps + left * whole
    tokens = counts.num_committed + left * whole * limits.tokens_per_step
    if rest and rest * steps >= tokens:
        steps, tokens = steps + left, tokens + left * rest
    return tokens / steps if steps else 1.0
