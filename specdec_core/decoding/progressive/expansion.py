"""Which token a draft node gains: the target's first choice, or one drawn near it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def first_choices(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Return the likeliest token of every ranking."""
    return [ranking[0] for ranking in rankings]


def drawn_choices(
    rankings: Sequence[Sequence[int]],
    probabilities: Sequence[Sequence[float]],
    generator: np.random.Generator,
    *,
    nucleus: float = 1.0,
) -> list[int]:
    """Return one token of every ranking, drawn by its probability.

    Args:
        rankings: Ids, best first.
        probabilities: Theirs, over the whole vocabulary.
        generator: Of the request; one number is drawn per ranking.
        nucleus: Only the fewest best ids that have this much probability together take part, all
            of them if they have less.
    """
    draws = generator.random(len(rankings)).tolist()
    choices = []
    for ranking, chances, draw in zip(rankings, probabilities, draws, strict=True):
        sums = list(accumulate(chances))
        num = next((i for i, total in enumerate(sums, 1) if total >= nucleus), len(sums))
        target = draw * sums[num - 1]
        choices.append(next(ranking[i] for i in range(num) if target < sums[i] or i == num - 1))
    return choices
