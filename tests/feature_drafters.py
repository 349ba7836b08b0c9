"""Drafters that look inside the target: untrained heads, and an untrained block with a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from specdec_core.config.base import DrafterOptions
from specdec_core.decoding import (
    DraftBudget,
    DrafterContext,
    DrafterNeeds,
    Proposal,
    StepOutcome,
)
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.tree import TokenTree
from tests.doubles import slow_ranking

Floats = NDArray[np.float64]


class Heads(DrafterOptions):
    """Options of `HeadsDrafter`."""

    method: Literal["test-heads"] = "test-heads"
    drafts_trees: ClassVar[bool] = True


class Block(DrafterOptions):
    """Options of `BlockDrafter`."""

    method: Literal["test-block"] = "test-block"
    drafts_trees: ClassVar[bool] = True


@dataclass(frozen=True)
class Sizes:
    """What an untrained drafter knows of its target: numbers of hidden features and ids."""

    hidden: int
    vocab: int


class TreeBuilder:
    """A tree that grows node by node inside a budget."""

    def __init__(self, root: int, budget: DraftBudget, most: int) -> None:
        self.tokens, self.parents, self.depths = [root], [-1], [0]
        self._max_nodes, self._max_depth = min(budget.max_nodes, most), budget.max_depth

    def add(self, parent: int, token: int) -> int | None:
        """Return the new node, None where the budget is used up."""
        depth = self.depths[parent] + 1
        if len(self.tokens) > self._max_nodes or depth > self._max_depth:
            return None
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(depth)
        return len(self.tokens) - 1

    def proposal(self) -> Proposal:
        return Proposal(TokenTree(tuple(self.tokens), tuple(self.parents)))


class HeadsDrafter:
    """Head m ranks the token m + 2 places on, from the head's input of the last token run.

    All nodes of a depth have the same children (Medusa, section 2.1). Weights are random.
    """

    widths = (5, 1, 1)

    def __init__(self, sizes: Sizes, context: DrafterContext | None = None, seed: int = 0) -> None:
        self.needs = self.needs_for(Heads())
        rng = np.random.default_rng([seed, 1])
        self._heads = rng.normal(size=(len(self.widths), sizes.hidden, sizes.vocab))

    @staticmethod
    def needs_for(config: Heads) -> DrafterNeeds:
        return DrafterNeeds(max_nodes=13, taps=(HEAD_INPUT,))

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        self._num_rows, self._last = 0, np.zeros(0)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        if self._num_rows == 0:
            return Proposal.nothing(sequence[-1])
        assert self._num_rows == len(sequence) - 1
        tree = TreeBuilder(sequence[-1], budget, self.needs.max_nodes)
        level: list[int] = [0]
        for head, width in zip(self._heads, self.widths, strict=True):
            best = slow_ranking(list(self._last @ head), width)
            made = [tree.add(node, token) for node in level for token in best]
            level = [node for node in made if node is not None]
        return tree.proposal()

    def observe(self, outcome: StepOutcome) -> None:
        assert outcome.hidden is not None
        self._num_rows += len(outcome.hidden)
        self._last = outcome.hidden[-1].double().numpy()


class BlockDrafter:
    """One attention block over pairs of a token's embedding and the state in front of it.

    Its cache holds a key and a value per committed pair; those of drafted nodes, whose states are
    its own guesses, are never kept (EAGLE, section 4.1; EAGLE-3, section 3.1, for several states
    joined into one). Weights are random.
    """

    widths = (4, 2, 1)

    def __init__(self, sizes: Sizes, context: DrafterContext | None = None, seed: int = 0) -> None:
        self.needs = self.needs_for(Block())
        rng = np.random.default_rng([seed, 2])
        h, taps = sizes.hidden, len(self.needs.taps)
        self._join, self._mix = rng.normal(size=(taps * h, h)), rng.normal(size=(2 * h, h))
        self._qkv, self._head = rng.normal(size=(3, h, h)), rng.normal(size=(h, sizes.vocab))
        self._embedding = rng.normal(size=(sizes.vocab, h))

    @staticmethod
    def needs_for(config: Block) -> DrafterNeeds:
        return DrafterNeeds(max_nodes=14, taps=(0, 2, HEAD_INPUT))

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        self._states: list[Floats] = []
        self._cache: list[Floats] = []

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        if not self._states:
            return Proposal.nothing(sequence[-1])
        assert len(self._states) == len(sequence) - 1
        pairs = [
            self._pair(token, state)
            for token, state in zip(sequence[1:], self._states, strict=True)
        ]
        self._cache.extend(self._row(pair) for pair in pairs[len(self._cache) :])
        tree = TreeBuilder(sequence[-1], budget, self.needs.max_nodes)
        level = [(0, self._attend(pairs[-1], self._cache), self._cache)]
        for width in self.widths:
            below = []
            for node, state, rows in level:
                for token in slow_ranking(list(state @ self._head), width):
                    child = tree.add(node, token)
                    if child is not None:
                        pair = self._pair(token, state)
                        seen = [*rows, self._row(pair)]
                        below.append((child, self._attend(pair, seen), seen))
            level = below
        return tree.proposal()

    def observe(self, outcome: StepOutcome) -> None:
        assert outcome.hidden is not None
        self._states.extend(np.tanh(outcome.hidden.double().numpy() @ self._join))

    def _pair(self, token: int, state: Floats) -> Floats:
        return np.tanh(np.concatenate((self._embedding[token], state)) @ self._mix)

    def _row(self, pair: Floats) -> Floats:
        return np.stack((pair @ self._qkv[1], pair @ self._qkv[2]))

    def _attend(self, pair: Floats, rows: Sequence[Floats]) -> Floats:
        keys, values = np.stack(rows, 1)
        scores = keys @ (pair @ self._qkv[0]) / np.sqrt(len(pair))
        shares = np.exp(scores - scores.max())
        return np.tanh(pair + shares @ values / shares.sum())


class DecoyDrafter:
    """Knows what the target writes and proposes `depth` tokens of it behind wrong siblings.

    The right node of depth d is 2 d, so that no accepted path is a prefix of the nodes. Keeps
    all hidden states it is shown.
    """

    def __init__(
        self, output: Sequence[int], depth: int, vocab_size: int, taps: tuple[int, ...]
    ) -> None:
        self.needs = DrafterNeeds(max_nodes=2 * depth, taps=taps)
        self._output, self._depth, self._vocab_size = output, depth, vocab_size

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        self._num_prompt = len(prompt)
        self.outcomes: list[StepOutcome] = []

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        tree = TreeBuilder(sequence[-1], budget, self.needs.max_nodes)
        start, node = len(sequence) - self._num_prompt, 0
        for right in self._output[start : start + self._depth]:
            tree.add(node, (right + 1) % self._vocab_size)
            child = tree.add(node, right)
            if child is None:
                break
            node = child
        return tree.proposal()

    def observe(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)
