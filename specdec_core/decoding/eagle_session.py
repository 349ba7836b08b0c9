"""An EAGLE head that drafts for one sequence: its cache follows the features of the target."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from specdec_core.drafts.eagle import EagleHead
from specdec_core.drafts.trainable import embed_tokens
from specdec_core.errors import CacheDesyncError
from specdec_core.models.cache import KVCache
from specdec_core.models.masks import BoolArray, additive_masks

if TYPE_CHECKING:
    from specdec_core.models.target import Target

# Rows allocated at first, and rows of one pass over a prompt, which bound the masks.
_FIRST_ROWS = 256
_PASS_ROWS = 512


class EagleSession:
    """Runs a head behind the tokens of one growing sequence; the form of `DraftSession`.

    Row i of its cache belongs to the pair of the target's feature i and token i + 1. `begin` adds
    the rows that `observe` brought features for; the output of the last one, the root's, is the
    guess of the feature that the target has not computed yet. `extend` runs drafted nodes on the
    outputs of their parents; their rows stay pending and the next `begin` drops them all, as the
    target's own features of what was accepted are known by then.

    Node 0 is the last token of the sequence, further ones are numbered as they are run. A node of
    depth d has the position of the last feature plus d.

    Source: EAGLE, section 4.1; EAGLE-2, section 4.1, for the tree; EAGLE-3, section 3.1.

    Args:
        head: Its weights, on the target's device and in its type.
        target: Whose embedding, head and rotary tables it uses.
    """

    def __init__(self, head: EagleHead, target: Target) -> None:
        self._head, self._target = head, target
        self._cache = self._new_cache()
        self._fresh: list[Tensor] = []
        self._num_features = 0
        self._states: Tensor | None = None  # [nodes run, h]
        self._depths: list[int] = []
        self._seen = np.zeros((0, 0), dtype=np.bool_)  # [pending, pending]
        self._root_logits: Tensor | None = None

    def reset(self) -> None:
        """Begin a sequence."""
        self._cache = self._new_cache()
        self._fresh, self._num_features = [], 0
        self._states = self._root_logits = None

    def observe(self, hidden: Tensor) -> None:
        """Take the target's features ``[n, T * h]`` of the sequence's next tokens."""
        self._fresh.append(hidden)
        self._num_features += len(hidden)

    def max_depth(self, sequence: Sequence[int]) -> int:
        """Return how many tokens can be drafted in one path: any number, or 0 for no features.

        Raises:
            CacheDesyncError: if the features are not those of all tokens but the last.
        """
        if self._num_features == 0:
            return 0
        if self._num_features != len(sequence) - 1:
            raise CacheDesyncError(
                f"the drafter was shown {self._num_features} hidden states for a sequence of "
                f"{len(sequence)} tokens, which has {len(sequence) - 1}: reset it with the prompt"
            )
        return sys.maxsize

    @torch.inference_mode()
    def begin(self, sequence: Sequence[int]) -> Tensor:
        """Return the logits after `sequence`, ``[V]`` or ``[V_d]``; asked again the same.

        `max_depth` has been asked before.
        """
        self._cache.truncate([0])
        self._seen, self._depths = np.zeros((0, 0), dtype=np.bool_), [0]
        if self._fresh:
            first = self._cache.lengths[0]
            tokens = self._ids(sequence[first + 1 :])
            features = self._head.features(torch.cat(self._fresh))
            self._fresh = []
            for start in range(0, len(tokens), _PASS_ROWS):
                part = slice(start, start + _PASS_ROWS)
                last = self._append(features[part], tokens[part])
            self._states = last
            self._root_logits = self._logits(last)[0]
        assert self._states is not None
        assert self._root_logits is not None
        self._states = self._states[:1]
        return self._root_logits

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Run more nodes of the tree and return the logits after them, ``[n, V]``.

        Args:
            tokens: Their tokens.
            parents: Their parents, nodes run before.
        """
        assert self._states is not None
        num, num_before = len(tokens), len(self._seen)
        seen = np.zeros((num_before + num, num_before + num), dtype=np.bool_)
        seen[:num_before, :num_before] = self._seen
        for node, parent in enumerate(parents, start=num_before):
            if parent:
                seen[node] = seen[parent - 1]
            seen[node, node] = True
        self._seen = seen
        depths = [self._depths[parent] + 1 for parent in parents]
        self._depths.extend(depths)
        index = torch.tensor(parents, device=self._target.device)
        states = self._run(
            self._states[index], self._ids(tokens), depths, seen[num_before:], is_continued=True
        )
        self._states = torch.cat((self._states, states))
        return self._logits(states)

    def _append(self, features: Tensor, tokens: Tensor) -> Tensor:
        """Commit the rows of true features ``[n, h]`` and return the last one's output, [1, h]."""
        num = len(features)
        triangle = np.tri(num, dtype=np.bool_)
        # The first of them is one position behind the last committed row.
        states = self._run(features, tokens, range(1, num + 1), triangle)
        self._cache.commit([range(num)])
        return states[-1:]

    def _run(
        self,
        states: Tensor,
        tokens: Tensor,
        depths: Sequence[int],
        seen: BoolArray,
        *,
        is_continued: bool = False,
    ) -> Tensor:
        """Return the layer's outputs ``[n, h]``; the rows become pending.

        Args:
            states: What rows read, ``[n, h]``.
            tokens: Of the pairs, ``[n]``.
            depths: Positions behind the last committed row.
            seen: ``[n, pending]``: which pending rows each sees, itself included.
            is_continued: Whether rows are pending already.
        """
        target, cache, block = self._target, self._cache, self._head.block
        length, shape = cache.lengths[0], block.shape
        cache.reserve(length + seen.shape[1])
        total = cache.begin([len(tokens)], is_continued=is_continued)
        positions = np.asarray(depths, dtype=np.int64)[None] + (length - 1)
        mask = additive_masks(
            [length],
            [seen],
            positions,
            total,
            {None},
            num_groups=shape.num_heads // shape.num_kv_heads,
            dtype=target.dtype,
            device=target.device,
            pending_positions=positions,
        )[None]
        on_device = torch.from_numpy(positions).to(target.device)
        rotary = target.rotary.at(on_device, int(positions.max()))[shape.rope]
        embedded = embed_tokens(tokens[None], target.embedding, target.embed_scale)
        residual, x = self._head.enter(states[None], embedded)
        query, keys, values = block.project(x, rotary)
        mixed = block.mix(query, *cache.write(0, keys, values), mask)
        return block.finish(residual, mixed)[0]

    def _logits(self, states: Tensor) -> Tensor:
        if self._head.spec.version == 1:
            return self._target.head(self._head.leave(states))
        return self._head.own_logits(states)

    def _ids(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor(tokens, dtype=torch.int64, device=self._target.device)

    def _new_cache(self) -> KVCache:
        shape, target = self._head.block.shape, self._target
        size = (2, 1, 1, shape.num_kv_heads, _FIRST_ROWS, shape.head_dim)
        return KVCache.allocate(size, target.dtype, target.device)
