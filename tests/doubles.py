"""Test doubles of the target and of drafters, and the slow references they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.models.taps import check_taps
from specdec_core.skip import SkipConfig
from specdec_core.tree import TokenTree

LogitsAfter = Callable[[Sequence[int]], Sequence[float]]
NUM_BLOCKS = 2


class ScriptedCache:
    """Holds tokens instead of keys and values, and checks every call against the contract."""

    def __init__(self, batch_size: int, capacity: int) -> None:
        self.rows: list[list[int]] = [[] for _ in range(batch_size)]
        self.capacity = capacity
        self._pending: list[list[int]] | None = None

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.rows]

    def append(self, new: Sequence[Sequence[int]], *, is_pending: bool) -> None:
        """Add the rows of a forward; the widest decides how many are used, as for tensors."""
        assert self._pending is None
        assert max(self.lengths) + max(map(len, new)) <= self.capacity
        if is_pending:
            self._pending = [list(tokens) for tokens in new]
        else:
            for row, tokens in zip(self.rows, new, strict=True):
                row.extend(tokens)

    def extend(self, trees: Sequence[TokenTree]) -> list[int]:
        """Add pending rows for the nodes that have none; return the first of them per sequence."""
        assert self._pending is not None
        firsts = [len(tokens) for tokens in self._pending]
        for tree, tokens in zip(trees, self._pending, strict=True):
            assert list(tree.tokens[: len(tokens)]) == tokens
        self._pending = None
        self.append([tree.tokens for tree in trees], is_pending=True)
        return firsts

    def truncate(self, num_nodes: Sequence[int]) -> None:
        assert self._pending is not None
        for tokens, num in zip(self._pending, num_nodes, strict=True):
            assert 0 <= num <= len(tokens)
            del tokens[num:]

    def reserve(self, capacity: int) -> None:
        self.capacity = max(capacity, self.capacity)

    def narrow(self, start: int, stop: int) -> ScriptedCache:
        assert self._pending is None
        part = type(self)(stop - start, self.capacity)
        part.rows = [list(row) for row in self.rows[start:stop]]
        return part

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        assert self._pending is not None
        for row, tokens, path in zip(self.rows, self._pending, paths, strict=True):
            assert path[0] == 0
            assert list(path) == sorted(set(path))
            row.extend(tokens[node] for node in path)
        self._pending = None

    def keep(self, rows: Sequence[int]) -> None:
        assert self._pending is None
        assert len(set(rows)) == len(rows)
        self.rows = [self.rows[row] for row in rows]


class ScriptedView:
    """A target whose logits are a function of the context its cache really holds.

    A wrong cache row, path or position shows as a wrong token. Rows of absent nodes are NaN. Its
    hidden states are the logits after the same context, turned by the number of the tap.
    """

    def __init__(
        self,
        logits_after: LogitsAfter,
        vocab_size: int,
        *,
        max_positions: int = 4096,
        dtype: torch.dtype = torch.float64,
        cache_class: type[ScriptedCache] = ScriptedCache,
    ) -> None:
        self.logits_after = logits_after
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self.num_forwards = 0
        self._dtype = dtype
        self._cache_class = cache_class

    def new_cache(self, batch_size: int, capacity: int) -> ScriptedCache:
        return self._cache_class(batch_size, capacity)

    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: ScriptedCache, prefix: object | None = None
    ) -> torch.Tensor:
        assert prefix is None
        cache.append(prompts, is_pending=False)
        return self._tensor([self.logits_after(row) for row in cache.rows])

    def forward(self, trees: Sequence[TokenTree], cache: ScriptedCache) -> torch.Tensor:
        cache.append([tree.tokens for tree in trees], is_pending=True)
        return self._rows_after(trees, [0] * len(trees), cache)

    def extend(self, trees: Sequence[TokenTree], cache: ScriptedCache) -> torch.Tensor:
        return self._rows_after(trees, cache.extend(trees), cache)

    @property
    def hidden_size(self) -> int:
        return self.vocab_size

    def check_taps(self, taps: Sequence[int]) -> None:
        check_taps(taps, NUM_BLOCKS)

    def prefill_tapped(
        self,
        prompts: Sequence[Sequence[int]],
        cache: ScriptedCache,
        taps: Sequence[int],
        prefix: object | None = None,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        logits = self.prefill(prompts, cache, prefix)
        beginnings = ([row[: i + 1] for i in range(len(row))] for row in cache.rows)
        rows = [self._tensor([self.logits_after(one) for one in each]) for each in beginnings]
        return logits, [turned(each, taps) for each in rows]

    def forward_tapped(
        self, trees: Sequence[TokenTree], cache: ScriptedCache, taps: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.forward(trees, cache)
        return logits, turned(logits, taps)

    def sparser(self, skip: SkipConfig) -> ScriptedView:
        """Return a view that, if it skips anything, takes every even last token for the next."""

        def logits_after(context: Sequence[int]) -> Sequence[float]:
            if not skip.units or context[-1] % 2:
                return self.logits_after(context)
            return self.logits_after([*context[:-1], (context[-1] + 1) % self.vocab_size])

        return ScriptedView(logits_after, self.vocab_size, max_positions=self.max_positions)

    def _rows_after(
        self, trees: Sequence[TokenTree], firsts: Sequence[int], cache: ScriptedCache
    ) -> torch.Tensor:
        self.num_forwards += 1
        width = max(len(tree) - first for tree, first in zip(trees, firsts, strict=True))
        absent = [float("nan")] * self.vocab_size
        logits = []
        for tree, first, row in zip(trees, firsts, cache.rows, strict=True):
            contexts = [[*row, *path_tokens(tree, node)] for node in range(first, len(tree))]
            rows = [self.logits_after(context) for context in contexts]
            logits.append([*rows, *[absent] * (width - len(rows))])
        return self._tensor(logits)

    def _tensor(self, logits: object) -> torch.Tensor:
        return torch.tensor(np.asarray(logits), dtype=self._dtype)


def turned(rows: torch.Tensor, taps: Sequence[int]) -> torch.Tensor:
    """Return the hidden states [.., T, V] of a scripted target from its logits [.., V]."""
    return torch.stack([rows.roll(tap, -1) for tap in taps], -2)


def path_tokens(tree: TokenTree, node: int) -> list[int]:
    """Return the tokens from the root to `node`, by following parents."""
    tokens: list[int] = []
    while node >= 0:
        tokens.insert(0, tree.tokens[node])
        node = tree.parents[node]
    return tokens


def random_view(
    seed: int, vocab_size: int = 8, order: int = 2, *, has_ties: bool = False
) -> ScriptedView:
    """Return a target with random logits after every distinct run of the last `order` tokens."""
    memo: dict[tuple[int, ...], list[float]] = {}

    def logits_after(context: Sequence[int]) -> list[float]:
        last = tuple(context[-order:])
        if last not in memo:
            rng = np.random.default_rng([seed, *last])
            values = rng.integers(0, 3, vocab_size) if has_ties else rng.normal(size=vocab_size)
            memo[last] = values.astype(float).tolist()
        return memo[last]

    return ScriptedView(logits_after, vocab_size)


def table_view(next_token: dict[int, int], vocab_size: int) -> ScriptedView:
    """Return a target that writes `next_token` of the last token, and after others token 0."""

    def logits_after(context: Sequence[int]) -> list[float]:
        wanted = next_token.get(context[-1], 0)
        return [float(token == wanted) for token in range(vocab_size)]

    return ScriptedView(logits_after, vocab_size)


def slow_greedy(
    logits_after: LogitsAfter,
    prompt: Sequence[int],
    max_new_tokens: int,
    eos_ids: Sequence[int] = (),
) -> list[int]:
    """Return plain greedy output by scoring the whole context anew for every token."""
    output: list[int] = []
    while len(output) < max_new_tokens:
        logits = list(logits_after([*prompt, *output]))
        output.append(logits.index(max(logits)))
        if output[-1] in eos_ids:
            break
    return output


def slow_ranking(logits: Sequence[float], k: int) -> list[int]:
    """Return the k best ids by falling logit, then rising id."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))[:k]


@dataclass
class ChainDrafter:
    """Proposes what `continuation` says follows the sequence, as a chain cut to the budget."""

    continuation: Callable[[Sequence[int]], Sequence[int]]
    needs: DrafterNeeds = field(default_factory=lambda: DrafterNeeds(max_nodes=64))
    outcomes: list[StepOutcome] = field(default_factory=list)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        self.outcomes.clear()

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        length = min(budget.max_depth, budget.max_nodes)
        return Proposal.chain(sequence[-1], list(self.continuation(sequence))[:length])

    def observe(self, outcome: StepOutcome) -> None:
        self.outcomes.append(outcome)


@dataclass
class GarbageDrafter:
    """Proposes random trees with distinct siblings, inside the budget, from its own generator."""

    seed: int
    vocab_size: int
    needs: DrafterNeeds = field(default_factory=lambda: DrafterNeeds(max_nodes=24))

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        self._rng = np.random.default_rng([self.seed, len(prompt)])

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        tokens, parents, depths = [sequence[-1]], [-1], [0]
        used: set[tuple[int, int]] = set()
        for _ in range(int(self._rng.integers(0, budget.max_nodes + 1))):
            parent = int(self._rng.integers(0, len(tokens)))
            token = int(self._rng.integers(0, self.vocab_size))
            if depths[parent] == budget.max_depth or (parent, token) in used:
                continue
            used.add((parent, token))
            tokens.append(token)
            parents.append(parent)
            depths.append(depths[parent] + 1)
        return Proposal(TokenTree(tuple(tokens), tuple(parents)))

    def observe(self, outcome: StepOutcome) -> None:
        pass
