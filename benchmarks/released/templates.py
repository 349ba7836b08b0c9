"""The fixed tree shapes of two releases, and how both fill them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from specdec_core.decoding.drafter import DraftBudget
from specdec_core.tree.static_tree import StaticTree
from specdec_core.tree.token_tree import TokenTree

TOP_K = 8
_UNKNOWN = (0,) * TOP_K

# Token Recycling in Spec-Bench: every node by the ranks along its path.
_EIGHTY = """
0 1 2 3 4 5 6 7
00 01 02 03 04 05 06 07 10 11 12 13 20 21 22 30 31 40 50 60 70
000 001 002 003 004 005 006 007 010 011 012 020 021 030 040 050 060 070 100 101 110 200 300 400 500
0000 0001 0002 0003 0004 0010 0011 0020 0030 0040 0100 0200 1000 2000 3000
00000 00001 00002 00010 00020 00100 01000 10000
000000 000001 000100
"""
# SAM-Decoding's fallback: children of every inner node, breadth first.
_SIXTY = (
    *(7, 6, 5, 3, 2, 2, 1, 1),
    *(3, 2, 2, 1, 1, 0, 3, 2, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 0),
    *(2, 1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0),
    *(2, 0, 1, 0, 1, 0, 0, 0),
)


def eighty_nodes() -> StaticTree:
    """Return the 80 nodes of Token Recycling, 8, 21, 25, 15, 8 and 3 per depth."""
    return StaticTree.of([tuple(map(int, path)) for path in _EIGHTY.split()])


def sixty_nodes() -> StaticTree:
    """Return the 60 nodes of SAM-Decoding's fallback, 7, 20, 21, 8 and 4 per depth."""
    paths: list[tuple[int, ...]] = [()]
    for node, num in enumerate(_SIXTY):
        paths += [(*paths[node], rank) for rank in range(num)]
    return StaticTree.of(paths[1:])


def fill(
    shape: StaticTree, root: int, rows: Mapping[int, Sequence[int]], budget: DraftBudget
) -> TokenTree:
    """Return the shape with the ranked successors of every token; of unknown ones, token 0.

    Of siblings with the same token only the first is drafted: whatever is right below a later
    one is right below it.

    Args:
        shape: Which ranks are drafted.
        root: Token of the root.
        rows: Ids ranked best after a token, `TOP_K` each.
        budget: Deeper nodes are left out.
    """
    tokens, parents, places = [root], [-1], {0: 0}
    taken: dict[tuple[int, int], int] = {}
    for node in range(1, len(shape.parents)):
        parent = places.get(shape.parents[node])
        if parent is None or shape.depths[node] > budget.max_depth:
            continue
        token = rows.get(tokens[parent], _UNKNOWN)[shape.ranks[node]]
        if (parent, token) in taken:
            continue
        taken[parent, token] = places[node] = len(tokens)
        tokens.append(token)
        parents.append(parent)
    return TokenTree(tuple(tokens), tuple(parents))
