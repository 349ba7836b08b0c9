"""Candidates from a draft pool: which of what followed the last tokens is verified."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from specdec_core.decoding.progressive.pool import DraftPool, PoolNode
from specdec_core.tree.token_tree import TokenTree


def retrieve(
    pool: DraftPool,
    suffix: Sequence[int],
    *,
    max_nodes: int,
    max_depth: int,
    is_likely_first: bool,
) -> TokenTree:
    """Return what followed the ends of `suffix` in the pool as one tree, the longest end first.

    Args:
        pool: What was seen.
        suffix: Last tokens of the output, at least one; the last is the root. One token is the
            paper's retrieval.
        max_nodes: Most nodes, root not counted.
        max_depth: Longest path, tokens.
        is_likely_first: Whether the likeliest nodes after an end are taken first, rather than
            level by level the oldest.
    """
    tokens, parents = [suffix[-1]], [-1]
    placed: dict[tuple[int, int], int] = {}
    search = _likeliest if is_likely_first else _oldest
    for start in range(len(suffix)):
        begin = pool.find(suffix[start:])
        if begin is None:
            continue
        places = {id(begin): 0}
        for above, node in search(begin, max_depth):
            parent = places[id(above)]
            place = placed.get((parent, node.token))
            if place is None:
                place = len(tokens)
                if place > max_nodes:
                    return TokenTree(tuple(tokens), tuple(parents))
                placed[parent, node.token] = place
                tokens.append(node.token)
                parents.append(parent)
            places[id(node)] = place
    return TokenTree(tuple(tokens), tuple(parents))


def _oldest(begin: PoolNode, max_depth: int) -> Iterator[tuple[PoolNode, PoolNode]]:
    """Yield every node below `begin` behind its parent, level by level in the order added."""
    level = [begin]
    for _ in range(max_depth):
        below = []
        for node in level:
            for child in node.children.values():
                yield node, child
                below.append(child)
        level = below


def _likeliest(begin: PoolNode, max_depth: int) -> Iterator[tuple[PoolNode, PoolNode]]:
    """Yield every node below `begin` behind its parent, best first.

    A node is worth the product along its path of hits over tries, since it was added, with one
    hit and two tries more, so that it is never worth more than its parent. The newest of equals
    comes first, then the one found first.
    """
    heap = [(-1.0, 0, 0, 0, begin, begin)]
    found = 0
    while heap:
        worth, _, _, depth, above, node = heapq.heappop(heap)
        if depth:
            yield above, node
        if depth == max_depth:
            continue
        for child in node.children.values():
            found += 1
            chance = (child.hits + 1) / (node.tries - child.born + 2)
            heapq.heappush(heap, (worth * chance, -child.stamp, found, depth + 1, node, child))
