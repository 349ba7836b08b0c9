"""EAGLE heads computed row by row in NumPy, and trees grown node by node: no cache, no mask.

Written from the papers' description and the families' definitions; shares no code with the heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.doubles import slow_ranking

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SlowEagle:
    """A head's weights as arrays, and what it borrows from the target.

    Args:
        weights: The head's tensors by name.
        version: 1 or 3.
        shape: Its block's fields.
        embedding: ``[V, h]``, scaled.
        target_head: ``[V, h]``.
        inverse_frequencies: ``[d / 2]`` of the rotary embedding.
        ids: The target's ids of its head's rows.
    """

    weights: dict[str, Floats]
    version: int
    shape: dict[str, object]
    embedding: Floats
    target_head: Floats
    inverse_frequencies: Floats
    ids: Sequence[int]

    def log_probs(self, features: Floats, sequence: Sequence[int], path: Sequence[int]) -> Floats:
        """Return log-probabilities over the target's ids behind sequence and drafted path.

        Args:
            features: ``[len(sequence) - 1, T * h]``: the target's own.
            sequence: Tokens that the target has committed.
            path: Drafted tokens behind it.
        """
        logits = self.logits(features, sequence, path)
        full = np.full(len(self.embedding), -np.inf)
        full[list(self.ids)] = logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())
        return full

    def logits(self, features: Floats, sequence: Sequence[int], path: Sequence[int]) -> Floats:
        """Return the rows of whichever head counts behind sequence and drafted path."""
        rows: list[tuple[Floats, Floats]] = []  # keys and values so far, [K, d] each
        state = np.zeros(0)
        for place, token in enumerate([*sequence[1:], *path]):
            if place < len(features):
                state = features[place]
                if self.version == 3:
                    state = self._map("fc", state)
            state = self._row(state, token, place, rows)
        if self.version == 1:
            return self.target_head @ state
        return self.weights["lm_head.weight"] @ self._norm("norm", state, offset=0.0)

    def _row(
        self, state: Floats, token: int, place: int, rows: list[tuple[Floats, Floats]]
    ) -> Floats:
        embedded = self.embedding[token]
        if self.version == 1:
            stream = self._map("fc", np.concatenate((embedded, state)))
            read = stream
        else:
            stream = state
            normed = self._norm("embedding_norm", embedded, offset=0.0)
            read = np.concatenate((normed, self._norm("state_norm", state, offset=0.0)))
        d = int(self.shape["head_dim"])
        query, key, value = (
            self._map(f"block.{name}_proj", read).reshape(-1, d) for name in ("q", "k", "v")
        )
        if self.shape["has_qk_norm"]:
            query = np.stack([self._norm("block.q_norm", head) for head in query])
            key = np.stack([self._norm("block.k_norm", head) for head in key])
        rows.append((self._turn(key, place), value))
        query = self._turn(query, place)
        group = len(query) // len(key)
        mixed = [self._attend(one, rows, head // group) for head, one in enumerate(query)]
        out = self._map("block.o_proj", np.concatenate(mixed))
        if self.shape["has_sandwich_norms"]:
            out = self._norm("block.post_attention_norm", out)
        stream = stream + out
        normed = self._norm("block.mlp_norm", stream)
        gate, up = self._map("block.gate_proj", normed), self._map("block.up_proj", normed)
        out = self._map("block.down_proj", self._bend(gate) * up)
        if self.shape["has_sandwich_norms"]:
            out = self._norm("block.post_mlp_norm", out)
        return stream + out

    def _attend(self, query: Floats, rows: Sequence[tuple[Floats, Floats]], head: int) -> Floats:
        scale = float(self.shape["attention_scale"])
        scores = np.array([query @ keys[head] * scale for keys, _ in rows])
        shares = np.exp(scores - scores.max())
        values = np.stack([values[head] for _, values in rows])
        return shares / shares.sum() @ values

    def _turn(self, heads: Floats, place: int) -> Floats:
        angles = place * self.inverse_frequencies
        low, high = np.split(heads, 2, axis=-1)
        cos, sin = np.cos(angles), np.sin(angles)
        return np.concatenate((low * cos - high * sin, high * cos + low * sin), -1)

    def _map(self, name: str, x: Floats) -> Floats:
        return self.weights[f"{name}.weight"] @ x + self.weights.get(f"{name}.bias", 0.0)

    def _norm(self, name: str, x: Floats, offset: float | None = None) -> Floats:
        offset = float(self.shape["norm_offset"]) if offset is None else offset
        size = np.sqrt(np.mean(x * x) + float(self.shape["norm_eps"]))
        return x / size * (self.weights[f"{name}.weight"] + offset)

    def _bend(self, x: Floats) -> Floats:
        if self.shape["activation"] == "silu":
            return x / (1.0 + np.exp(-x))
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def slow_dynamic_tree(
    log_probs_after, top_k: int, depth: int, num_nodes: int
) -> list[tuple[int, ...]]:
    """Return the paths of an expanded and reranked tree in the order they were made.

    Args:
        log_probs_after: Log-probabilities of the next token behind a drafted path.
        top_k: Children of a node, and nodes expanded per level.
        depth: Levels expanded below the root's children.
        num_nodes: Paths kept.

    Source: EAGLE-2, sections 4.1 and 4.2.
    """
    made: list[tuple[tuple[int, ...], float]] = []
    frontier: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    for _ in range(depth + 1):
        level = []
        for path, score in frontier:
            row = log_probs_after(path)
            ids = [token for token in slow_ranking(list(row), top_k) if row[token] > -np.inf]
            level.extend(((*path, token), score + row[token]) for token in ids)
        made.extend(level)
        best = sorted(range(len(level)), key=lambda i: (-level[i][1], i))[:top_k]
        frontier = [level[i] for i in sorted(best)]
    best = sorted(range(len(made)), key=lambda i: (-made[i][1], i))[:num_nodes]
    return [made[i][0] for i in sorted(best)]
