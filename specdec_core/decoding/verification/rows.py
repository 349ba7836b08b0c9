"""The target's distributions on one tree, processed where a rule looks and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec_core.config.sampling import Sampling
from specdec_core.decoding.sampling import process_logits
from specdec_core.tree.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Rows of one sequence's verify step.

    Attributes:
        logits: [N', V] logits after every node, N' at least the tree's size; never changed.
        tree: The candidates.
        tokens: Prompt and output, the last one the tree's root; never changed.
        num_prompt: How many of them are the prompt.
        sampling: How logits are processed.
    """

    logits: torch.Tensor  # [N', V]
    tree: TokenTree
    tokens: Sequence[int]
    num_prompt: int
    sampling: Sampling

    def processed(self, node: int) -> torch.Tensor:
        """Return the processed logits after `node`, [V], with the history of its own path."""
        history = self.tokens
        if self.sampling.has_penalties:
            history = [*self.tokens, *(self.tree.tokens[n] for n in path_to(self.tree, node)[1:])]
        return process_logits(self.logits[node], self.sampling, history, self.num_prompt)

    def position(self, node: int) -> int:
        """Return the place in the sequence of the token that follows `node`."""
        return len(self.tokens) + self.tree.depths[node]


def path_to(tree: TokenTree, node: int) -> tuple[int, ...]:
    """Return the nodes from the root to `node`."""
    path = [node]
    while path[-1]:
        path.append(tree.parents[path[-1]])
    return tuple(reversed(path))
