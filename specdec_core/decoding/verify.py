"""Greedy verification: which path of a tree the target itself would have written."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.tree.token_tree import TokenTree


def match_greedy(tree: TokenTree, choices: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return the accepted nodes, root first, and the bonus token.

    Descends while the target's choice after a node is the token of one of its children. Exact
    for every tree: one comparison per accepted node, no enumeration of paths.

    Args:
        tree: The proposal.
        choices: The target's most likely next token after every node, at least N long.

    Source: SpecInfer, greedy verification.
    """
    path = [0]
    while (child := tree.children(path[-1]).get(choices[path[-1]])) is not None:
        path.append(child)
    return tuple(path), choices[path[-1]]


def follow(tree: TokenTree, continuation: Sequence[int]) -> tuple[int, ...]:
    """Return the longest path of nodes, root first, that spells a prefix of `continuation`."""
    path = [0]
    for token in continuation:
        child = tree.children(path[-1]).get(token)
        if child is None:
            break
        path.append(child)
    return tuple(path)
