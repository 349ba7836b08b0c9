"""The continuations of a string of a text as one tree, the most frequent first."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from specdec_core.retrieval.indexed_text import SEPARATOR, IndexedText, Occurrences
from specdec_core.tree.token_tree import TokenTree

_Indices = npt.NDArray[np.int64]


def continuation_tree(
    text: IndexedText,
    found: Occurrences,
    root: int,
    *,
    max_nodes: int,
    max_depth: int,
    max_per_depth: int | None = None,
    max_occurrences: int = 5000,
) -> TokenTree:
    """Return the most frequent continuations of what was found, as a tree under `root`.

    A node's weight is the number of continuations through it. Nodes are taken in the order
    (heavier, shallower, lexicographically smaller), which has every ancestor in front of its
    descendants, so that any number of them is a tree.

    Args:
        text: The text.
        found: Where the end of the context occurs in it.
        root: Token of the root.
        max_nodes: Most nodes, root not counted.
        max_depth: Longest path, tokens.
        max_per_depth: Most nodes of one depth; what does not fit is left out with all below it.
        max_occurrences: Occurrences that count; of more, as many spread evenly over their order.

    Source: REST, section 3.2 (prefix trie of candidates with its weights); SAM-Decoding, best-first
    expansion of the static automaton. The order of equal weights is ours.
    """
    if max_depth < 1:
        return TokenTree.root_only(root)
    starts = _continuation_starts(text, found, max_occurrences)
    tokens, parents = [root], [-1]
    num_at_depth: Counter[int] = Counter()
    # Runs of continuations that begin alike: (-weight, depth, first row, token, parent node).
    heap = _children(text, starts, 0, len(starts), 0, max_nodes, 0)
    while heap and len(tokens) <= max_nodes:
        negative, depth, row, token, parent = heapq.heappop(heap)
        if num_at_depth[depth] == max_per_depth:
            continue
        num_at_depth[depth] += 1
        node = len(tokens)
        tokens.append(token)
        parents.append(parent)
        if depth < max_depth:
            for child in _children(text, starts, row, row - negative, depth, max_nodes, node):
                heapq.heappush(heap, child)
    return TokenTree(tuple(tokens), tuple(parents))


def _continuation_starts(text: IndexedText, found: Occurrences, most: int) -> _Indices:
    """Return where continuations begin, in their lexicographic order, at most `most`."""
    rows = found.first + np.arange(min(found.num, most)) * found.num // min(found.num, most)
    return text.suffixes[rows].astype(np.int64) + found.length


def _children(
    text: IndexedText, starts: _Indices, row: int, end: int, depth: int, most: int, parent: int
) -> list[tuple[int, int, int, int, int]]:
    """Return the runs into which the next token divides the rows [row, end), heaviest first."""
    if end - row == 1:
        token = int(text.tokens[starts[row] + depth])
        return [] if token == SEPARATOR else [(-1, depth + 1, row, token, parent)]
    column = text.tokens[starts[row:end] + depth]
    bounds = [0, *(np.flatnonzero(column[1:] != column[:-1]) + 1).tolist(), end - row]
    if column[-1] == SEPARATOR:
        del bounds[-1]  # separators are the last run
    runs = (
        (begin - behind, depth + 1, row + begin, int(column[begin]), parent)
        for begin, behind in pairwise(bounds)
    )
    return heapq.nsmallest(most, runs)
