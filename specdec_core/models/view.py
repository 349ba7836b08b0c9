"""(Sparse) views of a target: prefill, tree forward and caches over shared weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.config.evaluation import Prefill
from specdec_core.errors import ConfigError
from specdec_core.models.cache import KVCache
from specdec_core.models.eager import HalfObserver, run_blocks
from specdec_core.models.graphs import PassGraphs
from specdec_core.models.masks import tree_positions
from specdec_core.models.native.engine import Engine
from specdec_core.models.passes import PassTokens, in_parts
from specdec_core.models.plans import make_plan, number_slots
from specdec_core.models.prefix import PrefixCache
from specdec_core.models.prompt_states import PromptStates, Tokens
from specdec_core.models.taps import TapRecorder, check_taps
from specdec_core.skip import SkipConfig
from specdec_core.tree.token_tree import TokenTree

if TYPE_CHECKING:
    from specdec_core.models.target import Target

# Prompt tokens of one prefill pass; more are split, by sequence and within one, to bound memory.
_PREFILL_TOKENS = 4096


class TargetView:
    """A (sparse) target as the decode loop sees it: prefill, tree forward, caches.

    A skipped half is the identity on the residual stream, in prefill and decode, norms
    included; a skipped attention half keeps no keys and values at all. With dense prefill prompts
    run through the whole target, the first output token included, and skipped attention halves
    keep those rows of theirs, which nothing reads.

    Args:
        target: Whose weights it runs.
        skip: What it leaves out.
        host: The view whose caches it works on; None for its own.
        prefill: Whether prompts are read without what is skipped.
        states: What earlier prompts of this target became, to take over and to add to; a view on
            a host's caches has none.

    Source: TSS (sparse target); halves and dense prefill are ours.
    """

    def __init__(
        self,
        target: Target,
        skip: SkipConfig,
        host: TargetView | None = None,
        *,
        prefill: Prefill = "sparse",
        states: PromptStates | None = None,
    ) -> None:
        skip.validate(target.num_layers)
        self.target, self.skip = target, skip
        self._prompt_skip = SkipConfig() if prefill == "dense" else skip
        own = number_slots(target.num_layers, self._prompt_skip)
        self._slots: list[int] = host._slots if host else own
        self._plan = make_plan(target, skip, self._slots)
        self._prompt_plan = make_plan(target, self._prompt_skip, self._slots)
        self._states = states
        self._blocks = target.engine.blocks(self._plan) if target.engine is not None else None
        self._graphs: PassGraphs | None = None
        if target.capture is not None:
            self._graphs = PassGraphs(target, self._plan, self._embed_ids, target.capture)

    @property
    def vocab_size(self) -> int:
        """Token ids that it reads; its logits have as many columns, but for narrowed drafts."""
        return self.target.arch.vocab_size

    @property
    def max_positions(self) -> int:
        """Longest context the checkpoint was made for, tokens."""
        return self.target.arch.max_positions

    @property
    def device(self) -> torch.device:
        """Device of weights and logits."""
        return self.target.device

    def sparser(self, skip: SkipConfig) -> TargetView:
        """Return the view that leaves out `skip` too and works on this view's own caches.

        Rows that it writes lack the slots of what it skips: drop them before this view goes on.

        Raises:
            ConfigError: if a unit does not exist, or nothing would be left.
        """
        return TargetView(self.target, self.skip.union(skip), host=self)

    def new_cache(self, batch_size: int, capacity: int) -> KVCache:
        """Return an empty cache for `batch_size` sequences of `capacity` rows, pending included."""
        arch = self.target.arch
        size = (2, self._slots[-1], batch_size, arch.num_kv_heads, capacity, arch.head_dim)
        if self._graphs is not None:
            return self._graphs.new_cache(size)
        return KVCache.allocate(size, self.target.dtype, self.device)

    def check_taps(self, taps: Sequence[int]) -> None:
        """Check that the target has these hidden states; `models.taps` says which there are.

        Raises:
            ConfigError: if it lacks one.
        """
        check_taps(taps, self.target.num_layers)

    @torch.inference_mode()
    def build_prefix(self, tokens: Sequence[int], taps: Sequence[int] = ()) -> PrefixCache:
        """Compute a prompt prefix once, for `prefill` of prompts that begin with it.

        Its hidden states at `taps` are kept for `prefill_tapped`.
        """
        self.check_taps(taps)
        cache = self.new_cache(1, len(tokens))
        _, hidden = self._append_in_parts([list(tokens)], cache, taps)
        kept = hidden[0] if hidden else None
        skip = self._prompt_skip
        return PrefixCache(tuple(tokens), cache.export_prefix(), skip, tuple(taps), kept)

    @torch.inference_mode()
    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: KVCache, prefix: PrefixCache | None = None
    ) -> Tensor:
        """Commit whole prompts to an empty cache.

        Args:
            prompts: Token ids per sequence, prefix included, at least one beyond the prefix.
            cache: Empty cache of as many sequences.
            prefix: Shared beginning computed by `build_prefix` of the same view, or of another
                that reads prompts alike, or None.

        Returns:
            Logits after each prompt's last token, ``[B, V]``.

        Raises:
            ConfigError: if a prompt does not begin with the prefix or adds nothing to it, or the
                prefix was computed by another view.
        """
        return self.prefill_tapped(prompts, cache, (), prefix)[0]

    @torch.inference_mode()
    def prefill_tapped(
        self,
        prompts: Sequence[Sequence[int]],
        cache: KVCache,
        taps: Sequence[int],
        prefix: PrefixCache | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Do as `prefill` does and return the hidden states of all prompt tokens too.

        Returns:
            The logits, and per prompt ``[tokens, T, hidden]``, prefix included; none for no taps.

        Raises:
            ConfigError: as `prefill`, or if the prefix was built without these taps.
        """
        suffixes = [list(prompt) for prompt in prompts]
        before: list[Tensor] = []
        shared = prefix.tokens if prefix is not None else ()
        if prefix is not None:
            suffixes = [prefix.cut(prompt, self._prompt_skip) for prompt in prompts]
            before = [prefix.hidden_at(taps)] if taps else []
            cache.load_prefix(prefix.rows)
        if not all(suffixes):
            raise ConfigError("a prompt is empty: give at least one token")
        group = _prompts_per_pass(self.device, max(len(suffix) for suffix in suffixes))
        lasts: list[Tensor] = []
        hidden: list[Tensor] = []
        for start in range(0, len(suffixes), group):
            stop = min(start + group, len(suffixes))
            part = cache.narrow(start, stop)
            last, rows = self._append_in_parts(suffixes[start:stop], part, taps, shared)
            lasts.append(last)
            hidden.extend(torch.cat((*before, own)) for own in rows)
            cache.lengths[start:stop] = part.lengths
        # The compiled kernels give a row the same bits whatever is beside it.
        together = [torch.cat(lasts)] if self._blocks is not None else lasts
        target = self.target
        return torch.cat([target.head(target.final_norm(rows)) for rows in together]), hidden

    @torch.inference_mode()
    def forward(self, trees: Sequence[TokenTree], cache: KVCache) -> Tensor:
        """Run one token tree per sequence behind its committed rows; its rows become pending.

        Returns:
            Logits ``[B, N, V]`` in the model's dtype, N the largest tree; rows of absent nodes
            are undefined.
        """
        return self._run_trees(trees, cache, [0] * len(trees))

    @torch.inference_mode()
    def forward_tapped(
        self, trees: Sequence[TokenTree], cache: KVCache, taps: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Do as `forward` does and return the hidden states too, ``[B, N, T, hidden]``."""
        recorder = TapRecorder(taps)
        logits = self._run_trees(trees, cache, [0] * len(trees), recorder=recorder)
        return logits, recorder.rows()

    @torch.inference_mode()
    def extend(self, trees: Sequence[TokenTree], cache: KVCache) -> Tensor:
        """Run the nodes of each tree that have no row yet, behind the pending rows of the others.

        Args:
            trees: One per sequence; its first nodes are those run since the last commit.
            cache: Cache with their pending rows.

        Returns:
            Logits ``[B, N, V]`` of the new nodes, N the most of one tree; rows of absent nodes are
            undefined.
        """
        return self._run_trees(trees, cache, cache.pending, is_continued=True)

    @torch.inference_mode()
    def watch_prompt(self, tokens: Sequence[int], watch: HalfObserver) -> None:
        """Run one prompt and show `watch` every half: unit, input, output ``[1, N, hidden]``."""
        passed = PassTokens.of_chains([tokens])
        cache, embedded = self.new_cache(1, len(tokens)), self._embed(passed.ids)
        run_blocks(self.target, self._prompt_plan, embedded, passed, cache, watch=watch)

    def _run_trees(
        self,
        trees: Sequence[TokenTree],
        cache: KVCache,
        firsts: Sequence[int],
        *,
        is_continued: bool = False,
        recorder: TapRecorder | None = None,
    ) -> Tensor:
        """Return the logits ``[B, N, V]`` of every tree's nodes from its first new one on."""
        target, passed = self.target, PassTokens.of_trees(trees, firsts)
        embedded = self._embed(passed.ids)
        if self._blocks is not None:
            positions = tree_positions(cache.lengths, passed.depths)
            cache.begin(passed.counts, is_continued=is_continued)
            engine, seen = cast(Engine, target.engine), passed.ancestors
            return engine.forward(self._blocks, embedded, positions, seen, cache, recorder)
        pending = [tree.depths for tree in trees] if is_continued else None
        if self._graphs is not None and recorder is None:
            logits = self._graphs.run(passed, cache, pending)
            if logits is not None:
                return logits
        hidden = run_blocks(
            target, self._plan, embedded, passed, cache, pending_depths=pending, recorder=recorder
        )
        return target.head(target.final_norm(hidden))

    def _append_in_parts(
        self,
        sequences: list[list[int]],
        cache: KVCache,
        taps: Sequence[int] = (),
        prefix: Sequence[int] = (),
    ) -> tuple[Tensor, list[Tensor]]:
        """Do as `_append` does; a sequence too long for one pass is alone and takes several.

        The rows of `prefix`, computed in parts as well, are there.
        """
        before = in_parts(prefix, _PREFILL_TOKENS)
        *firsts, last = in_parts(sequences[0], _PREFILL_TOKENS)
        parts = []
        for first in firsts:
            parts.append(self._append([first], cache, taps, before)[1])
            before = (*before, first)
        ends, rows = self._append([last] if firsts else sequences, cache, taps, before)
        return ends, [torch.cat(own) for own in zip(*parts, rows, strict=True)]

    def _append(
        self,
        sequences: Sequence[Sequence[int]],
        cache: KVCache,
        taps: Sequence[int],
        before: tuple[Tokens, ...],
    ) -> tuple[Tensor, list[Tensor]]:
        """Commit `sequences` as chains behind the passes `before`, whose rows are there.

        Returns:
            Stream ``[B, hidden]`` in front of the final norm after the last token of each, and
            hidden states of each.
        """
        recorder = TapRecorder(taps) if taps else None
        passed, plan, shared = PassTokens.of_chains(sequences), self._prompt_plan, None
        if self._states is not None:
            key = before, tuple(map(tuple, sequences))
            shared = self._states.open(key, plan, cache)
        embedded = self._embed(passed.ids)
        hidden = run_blocks(
            self.target, plan, embedded, passed, cache, recorder=recorder, shared=shared
        )
        cache.commit([range(len(sequence)) for sequence in sequences])
        last = torch.tensor([len(sequence) - 1 for sequence in sequences], device=self.device)
        rows = hidden[torch.arange(len(sequences), device=self.device), last]
        if recorder is None:
            return rows, []
        kept = recorder.rows()
        return rows, [kept[row, : len(one)] for row, one in enumerate(sequences)]

    def _embed(self, tokens: np.ndarray) -> Tensor:
        """Return the scaled embeddings ``[B, N, hidden]``."""
        return self._embed_ids(torch.from_numpy(tokens).to(self.device))

    def _embed_ids(self, ids: Tensor) -> Tensor:
        target = self.target
        x = functional.embedding(ids, target.embedding)
        return x if target.embed_scale == 1.0 else x * target.embed_scale


def _prompts_per_pass(device: torch.device, widest: int) -> int:
    """Return how many prompts of up to `widest` tokens one prefill pass takes.

    One on a processor: so a prompt's states do not depend on what it is batched with, which padding
    would change in their last bits.
    """
    return 1 if device.type == "cpu" else max(1, _PREFILL_TOKENS // widest)
