"""Many continuations of one token as one tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from specdec_core.tree.token_tree import TokenTree


def merge_chains(
    root: int, chains: Iterable[Sequence[int]], *, max_nodes: int, max_depth: int
) -> TokenTree:
    """Return the tree in which chains that begin alike share nodes, in the order of `chains`.

    Args:
        root: Token that all chains continue.
        chains: Tokens after `root`, the most promising chain first.
        max_nodes: Most nodes, root not counted; the last chain that still adds one may be cut.
        max_depth: Tokens of each chain that are used.
    """
    tokens, parents = [root], [-1]
    placed: dict[tuple[int, int], int] = {}
    for chain in chains:
        node = 0
        for token in chain[:max_depth]:
            child = placed.get((node, token))
            if child is None:
                child = len(tokens)
                if child > max_nodes:
                    return TokenTree(tuple(tokens), tuple(parents))
                placed[node, token] = child
                tokens.append(token)
                parents.append(node)
            node = child
    return TokenTree(tuple(tokens), tuple(parents))
