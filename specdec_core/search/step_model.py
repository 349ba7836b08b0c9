"""Predicted step time of a sparse target: a measured dense curve, and the bytes each unit saves."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from specdec_core.errors import ConfigError
from specdec_core.skip import SkipConfig


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """Seconds of one target step over some nodes without some units.

    A step reads every weight once and the cache of every layer, and takes time in proportion:
    ``t(S, n) = t(n) * (1 - bytes saved by S / bytes of the dense step)``. An attention half saves
    its projections and its layer's keys and values, an MLP half its matrices, a block both. The
    head stays. What a drafter or the loop takes is not part of it.

    Attributes:
        nodes: Tree nodes per forward of the measured points, increasing.
        seconds_at: Measured seconds of the dense target at each.
        attention_bytes: Per layer, weights and cached keys and values of the attention half.
        mlp_bytes: Per layer, weights of the MLP half.
        rest_bytes: What no skip set saves, such as the language-model head.

    Raises:
        ConfigError: if the curve is empty, out of order or not positive.

    Source: ours; TSS reports that acceptance makes most of its speed-up and step time little.
    """

    nodes: tuple[int, ...]
    seconds_at: tuple[float, ...]
    attention_bytes: tuple[float, ...]
    mlp_bytes: tuple[float, ...]
    rest_bytes: float = 0.0

    def __post_init__(self) -> None:
        is_ordered = all(a < b for a, b in zip(self.nodes, self.nodes[1:], strict=False))
        is_whole = bool(self.nodes) and len(self.nodes) == len(self.seconds_at)
        if not is_ordered or not is_whole or min(self.seconds_at) <= 0:
            raise ConfigError(
                f"step times {self.seconds_at} at {self.nodes} nodes are no curve: measure at "
                "least one point, nodes increasing, seconds positive"
            )

    def dense_seconds(self, num_nodes: float) -> float:
        """Return t(n) of the dense target, linear between points and flat outside them."""
        right = bisect_left(self.nodes, num_nodes)
        if right == 0 or right == len(self.nodes):
            return self.seconds_at[min(right, len(self.nodes) - 1)]
        low, high = self.nodes[right - 1], self.nodes[right]
        share = (num_nodes - low) / (high - low)
        before, after = self.seconds_at[right - 1], self.seconds_at[right]
        return before + share * (after - before)

    def saving(self, skip: SkipConfig) -> float:
        """Return the share of the dense step's bytes that `skip` leaves unread, in [0, 1)."""
        saved = [
            own
            for skips, sizes in (
                (skip.skips_attention, self.attention_bytes),
                (skip.skips_mlp, self.mlp_bytes),
            )
            for layer, own in enumerate(sizes)
            if skips(layer)
        ]
        total = math.fsum((*self.attention_bytes, *self.mlp_bytes, self.rest_bytes))
        return math.fsum(saved) / total

    def seconds(self, skip: SkipConfig, num_nodes: float) -> float:
        """Return predicted seconds of one step of the sparse target over `num_nodes` nodes."""
        return self.dense_seconds(num_nodes) * (1.0 - self.saving(skip))


def half_bytes(
    *,
    hidden_size: int,
    intermediate_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    windows: Sequence[int | None],
    context: int,
    bytes_per_weight: int,
    bytes_per_cached: int,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return bytes of attention and MLP halves per layer, read by one step at `context` tokens.

    Norms and biases are left out: they are thousandths.

    Args:
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the gated MLP.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head.
        windows: Per layer, sliding-window width in tokens; None for full attention.
        context: Committed tokens in the cache.
        bytes_per_weight: Of one weight.
        bytes_per_cached: Of one number in the cache.
    """
    projections = hidden_size * head_dim * (2 * num_heads + 2 * num_kv_heads)
    attention = tuple(
        float(
            projections * bytes_per_weight
            + 2 * num_kv_heads * head_dim * min(context, window or context) * bytes_per_cached
        )
        for window in windows
    )
    mlp = float(3 * hidden_size * intermediate_size * bytes_per_weight)
    return attention, (mlp,) * len(attention)
