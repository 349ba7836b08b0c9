"""Agreement of a sparse output with the dense one: what stands in where no item has a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdec_core.records import SampleResult


def common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest sequence of ids that both hold in this order.

    Gaps are allowed on both sides. One row of the usual table is one integer, a bit per place of
    `first` that is 1 where the row rises, so that a token of `second` takes a few operations.

    Source: Allison and Dix 1986 (bit strings for the longest common subsequence).
    """
    places: dict[int, int] = {}
    for place, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << place
    row = 0
    for token in second:
        either = row | places.get(token, 0)
        row = either & ~(either - (row << 1 | 1))
    return row.bit_count()


def agreement(dense: Sequence[int], sparse: Sequence[int]) -> float:
    """Return how much of two outputs is the same, in [0, 1]; 1 exactly if they are equal.

    It is the F-measure of their longest common subsequence of token ids, 2 L / (n + m): the
    harmonic mean of the shares of both outputs that it makes up. It says how much an output
    changed, not whether it got worse.

    Source: Lin 2004 (ROUGE-L), here on token ids instead of words.
    """
    total = len(dense) + len(sparse)
    return 2 * common_length(dense, sparse) / total if total else 1.0


def agreement_scores(
    dense: Mapping[str, Sequence[int]], samples: Sequence[SampleResult]
) -> list[float]:
    """Return the agreement of each sample with the dense output of its item.

    Args:
        dense: Token ids by item.
        samples: Of the dense or a sparse target under the same request; their items are in `dense`.
    """
    return [agreement(dense[one.item_id], one.token_ids) for one in samples]
