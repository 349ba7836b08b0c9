"""All suffixes of a text in lexicographic order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Indices = npt.NDArray[np.int64]


def build_suffix_array(tokens: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the starts of all suffixes of `tokens` [n], the smallest suffix first, as [n].

    A suffix that ends where another one goes on is the smaller of the two. Prefix doubling: once
    suffixes are sorted by their first k tokens, the places of i and i + k sort them by the first
    2 k; those whose place is final take no part in later rounds. O(n log^2 n).

    Source: Manber and Myers 1990, with sorting in place of buckets; leaving out what is final as in
    Larsson and Sadakane 1999.
    """
    num = len(tokens)
    order = np.argsort(tokens, kind="stable")
    place = np.empty(num, np.int64)
    unsettled = np.arange(num)  # slots of `order` that share their place with another one
    keys = tokens[order].astype(np.int64)
    length = 1
    while True:
        starts, is_alone = _groups(keys)
        place[order[unsettled]] = unsettled[starts]
        unsettled = unsettled[~is_alone]
        if not len(unsettled):
            return order.astype(np.uint32)
        members = order[unsettled]
        behind = members + length
        second = np.where(behind < num, place[np.minimum(behind, num - 1)] + 1, 0)
        keys = place[members] * (num + 1) + second
        by_key = np.argsort(keys, kind="stable")
        order[unsettled], keys = members[by_key], keys[by_key]
        length *= 2


def _groups(keys: _Indices) -> tuple[_Indices, npt.NDArray[np.bool_]]:
    """Return for sorted `keys` [m] where each one's group begins, and whether it is alone, [m]."""
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(keys)), 0))
    is_last = np.ones(len(keys), np.bool_)
    is_last[:-1] = is_first[1:]
    return starts, is_first & is_last
