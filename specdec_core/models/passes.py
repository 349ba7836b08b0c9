"""The tokens of one forward pass over a batch, as trees or chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specdec_core.tree.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class PassTokens:
    """Nodes to run, ragged: sequence b has ``len(depths[b])`` of the N columns.

    Attributes:
        ids: Token ids ``[B, N]``, 0 for absent nodes.
        depths: Per sequence the depth of each node behind the committed tokens.
        ancestors: Per sequence ``[n, M]``: which pending nodes each node of the pass sees.
    """

    ids: NDArray[np.int64]
    depths: Sequence[Sequence[int]]
    ancestors: Sequence[NDArray[np.bool_]]

    @classmethod
    def of_trees(cls, trees: Sequence[TokenTree], firsts: Sequence[int]) -> PassTokens:
        """Return the nodes of every tree from its first new one on."""
        pairs = list(zip(trees, firsts, strict=True))
        return cls(
            _padded([tree.tokens[first:] for tree, first in pairs]),
            [tree.depths[first:] for tree, first in pairs],
            [tree.ancestors()[first:] for tree, first in pairs],
        )

    @classmethod
    def of_chains(cls, sequences: Sequence[Sequence[int]]) -> PassTokens:
        """Return whole sequences, each token behind the one before."""
        sizes = [len(sequence) for sequence in sequences]
        triangle = np.tri(max(sizes), dtype=np.bool_)
        return cls(
            _padded(sequences),
            [range(size) for size in sizes],
            [triangle[:size, :size] for size in sizes],
        )

    @property
    def counts(self) -> list[int]:
        """Nodes of every sequence."""
        return [len(each) for each in self.depths]


def _padded(sequences: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    ids = np.zeros((len(sequences), max(map(len, sequences))), dtype=np.int64)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = sequence
    return ids


def in_parts(tokens: Sequence[int], most: int) -> tuple[tuple[int, ...], ...]:
    """Return the passes of at most `most` tokens that one sequence alone takes."""
    return tuple(tuple(tokens[start : start + most]) for start in range(0, len(tokens), most))
