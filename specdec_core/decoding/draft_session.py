"""A model that drafts for one sequence: its cache follows the sequence, nothing is run twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from specdec_core.decoding.target import Cache
from specdec_core.decoding.verify import follow
from specdec_core.errors import CacheDesyncError
from specdec_core.tree.token_tree import TokenTree

# Rows allocated beside the prompt's at first.
_FIRST_ROWS = 128


class DraftCache(Cache, Protocol):
    """A cache whose pending rows may come from several passes over one tree."""

    def truncate(self, num_nodes: Sequence[int]) -> None:
        """Drop pending rows behind the first `num_nodes` of every sequence."""
        ...

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` rows per sequence."""
        ...


class DraftView(Protocol):
    """A view that can run a tree part by part."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids it reads; rows have as many logits, V', unless it is narrowed."""
        ...

    @property
    def max_positions(self) -> int:
        """Longest sequence it can run, tokens."""
        ...

    def new_cache(self, batch_size: int, capacity: int) -> Any:
        """Return an empty `DraftCache`."""
        ...

    def prefill(self, prompts: Sequence[Sequence[int]], cache: Any) -> torch.Tensor:
        """Commit all prompt rows."""
        ...

    def forward(self, trees: Sequence[TokenTree], cache: Any) -> torch.Tensor:  # [B, N, V']
        """Return logits after every node; their rows become pending."""
        ...

    def extend(self, trees: Sequence[TokenTree], cache: Any) -> torch.Tensor:  # [B, N, V']
        """Return logits after the nodes that have no pending row yet; they get one."""
        ...


class DraftSession:
    """Runs a draft view behind the tokens of one growing sequence.

    Per step `begin` runs what the sequence has gained, and `extend` the drafted nodes that are to
    have children. These rows stay pending; the next `begin` keeps those of the nodes that were
    accepted. So the lag is one token, the bonus, or two where a whole path was accepted, as its
    last token never had to be run.

    The cache is the session's own, made by `reset`, or lent for one step by `borrow`, with the
    rows of all tokens but the last. Nodes are numbered as they are run, the last token of the
    sequence is 0. Tokens the draft has no row for are run as its token 0.

    Source: Leviathan et al. 2023, algorithm 1, with a cache.
    """

    def __init__(self, view: DraftView) -> None:
        self._view = view
        self._cache: DraftCache | None = None
        self._tree: TokenTree | None = None
        self._num_lag = 0
        self._length = 0
        self._root_logits: torch.Tensor | None = None

    @torch.inference_mode()
    def reset(self, prompt: Sequence[int]) -> None:
        """Begin a sequence with a cache of its own; the last one's is freed first.

        All of the prompt but its last token is run here, once. A prompt longer than the draft's
        context is not.
        """
        self.release()
        if len(prompt) > self._view.max_positions:
            return
        self._cache = self._view.new_cache(1, len(prompt) + _FIRST_ROWS)
        if len(prompt) > 1:
            self._view.prefill([self._known(prompt[:-1])], self._cache)

    def borrow(self, cache: DraftCache) -> None:
        """Work on the rows of `cache` until `release`; what is written behind them is lost."""
        self.release()
        self._cache = cache

    def release(self) -> None:
        """Give up the cache."""
        self._cache = None
        self._tree = None
        self._root_logits = None

    def max_depth(self, sequence: Sequence[int]) -> int:
        """Return how many tokens can be drafted behind `sequence` in one path, 0 for none."""
        return max(0, self._view.max_positions - len(sequence) + 1)

    @torch.inference_mode()
    def begin(self, sequence: Sequence[int]) -> torch.Tensor:
        """Return the logits after `sequence`, [V']; asked again it returns the same.

        Args:
            sequence: The last one with more tokens, or the last one.

        Raises:
            CacheDesyncError: if there is no cache, or it does not belong to this sequence.
        """
        cache = self._held_cache()
        if self._tree is not None:
            if self._root_logits is not None and len(sequence) == self._length:
                self._tree = self._first_nodes(self._num_lag)
                cache.truncate([self._num_lag])
                return self._root_logits
            self._settle(self._known(sequence[cache.lengths[0] :]), cache)
        missing = self._known(sequence[cache.lengths[0] :])
        if not missing:
            raise CacheDesyncError(
                f"the draft cache has {cache.lengths[0]} rows for a sequence of {len(sequence)} "
                "tokens: a drafter's sequence only grows between resets"
            )
        cache.reserve(len(sequence))
        self._tree = TokenTree.chain(missing[0], missing[1:])
        self._num_lag, self._length = len(missing), len(sequence)
        self._root_logits = self._view.forward([self._tree], cache)[0, -1]
        return self._root_logits

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Run more nodes of the tree and return the logits after them, [n, V'].

        Args:
            tokens: Their tokens.
            parents: Their parents, nodes run before.
        """
        assert self._tree is not None
        cache, tree, above = self._held_cache(), self._tree, self._num_lag - 1
        self._tree = TokenTree(
            (*tree.tokens, *tokens), (*tree.parents, *(above + parent for parent in parents))
        )
        cache.reserve(cache.lengths[0] + len(self._tree))
        return self._view.extend([self._tree], cache)[0]

    def _settle(self, new: Sequence[int], cache: DraftCache) -> None:
        """Keep the rows of the nodes that became part of the sequence; its last token has none."""
        assert self._tree is not None
        path = follow(self._tree, new[1:])[: len(new) - 1]
        if new[0] != self._tree.tokens[0] or not path:
            raise CacheDesyncError(
                f"the draft cache went on with token {self._tree.tokens[0]}, but the sequence "
                f"with {new[:2]}: a drafter's sequence only grows between resets"
            )
        cache.commit([path])
        self._tree = None

    def _first_nodes(self, num: int) -> TokenTree:
        assert self._tree is not None
        return TokenTree(self._tree.tokens[:num], self._tree.parents[:num])

    def _known(self, tokens: Sequence[int]) -> list[int]:
        size = self._view.vocab_size
        return [token if token < size else 0 for token in tokens]

    def _held_cache(self) -> DraftCache:
        if self._cache is None:
            raise CacheDesyncError(
                "a draft model was asked to draft without a cache: reset its drafter with the "
                "prompt, or lend it the target's cache"
            )
        return self._cache
