"""The two halves of a transformer block, for every supported family, on packed weights.

One description (`Architecture`) covers Llama, Mistral, Qwen2, Qwen3 and Gemma 3: they differ in
norms, biases, windows and scales, not in shape. Shapes: B sequences, N nodes, H query heads,
K key-value heads, G = H / K, d head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.models.architecture import Architecture
from specdec_core.models.linear import GatedLinear, Linear, Storage
from specdec_core.models.weights import TensorSource


class RowStore(Protocol):
    """Where the layers of a pass put their keys and values: `KVCache`, or a captured pass."""

    def write(self, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the pass's rows and return all rows its queries may look at.

        Args:
            slot: Attention slot of the sparse view.
            keys: ``[B, N, H_kv, d]``, already rotated.
            values: ``[B, N, H_kv, d]``.

        Returns:
            Keys and values, ``[B, H_kv, total, d]`` each.
        """
        ...


@dataclass(frozen=True, slots=True)
class PassState:
    """What all layers of one forward pass share.

    Args:
        cache: What the pass writes to.
        masks: Additive mask ``[B, 1, G * N, total]`` by window, None where all is visible.
        rotary: Cosine and signed sine ``[B, N, 1, d]`` by rotary key.
    """

    cache: RowStore
    masks: dict[int | None, Tensor | None]
    rotary: dict[str | None, tuple[Tensor, Tensor]]


class RMSNorm:
    """Root-mean-square norm over the last dimension, computed in at least float32."""

    def __init__(self, weight: Tensor, eps: float, offset: float) -> None:
        self.weight = weight.to(_at_least_float32(weight.dtype)) + offset
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """Return the normalised `x`, same shape and dtype."""
        wide = x.to(self.weight.dtype)
        normed = functional.rms_norm(wide, wide.shape[-1:], eps=self._eps) * self.weight
        return normed.to(x.dtype)


class Attention:
    """The attention half: norm, projections, rotary embedding, attention, output projection."""

    def __init__(
        self,
        arch: Architecture,
        layer: int,
        tensors: TensorSource,
        storage: Storage | None = None,
    ) -> None:
        prefix = f"model.layers.{layer}"
        h, d = arch.hidden_size, arch.head_dim
        self._heads, self._kv_heads, self._head_dim = arch.num_heads, arch.num_kv_heads, d
        self._scale = arch.attention_scale
        self.shape = arch.layers[layer]
        kv_rows = arch.num_kv_heads * d
        rows = {"q_proj": arch.num_heads * d, "k_proj": kv_rows, "v_proj": kv_rows}
        attn = f"{prefix}.self_attn"
        weights = [tensors.get(f"{attn}.{name}.weight", (n, h)) for name, n in rows.items()]
        biases = []
        if arch.has_qkv_bias:
            biases = [tensors.get(f"{attn}.{name}.bias", (n,)) for name, n in rows.items()]
        self.qkv = Linear(torch.cat(weights), torch.cat(biases) if biases else None, storage)
        out = tensors.get(f"{attn}.o_proj.weight", (h, arch.num_heads * d))
        bias = tensors.get(f"{attn}.o_proj.bias", (h,)) if arch.has_output_bias else None
        self.out = Linear(out, bias, storage)
        self.norm = _norm(arch, tensors, f"{prefix}.input_layernorm", h)
        self.post_norm = (
            _norm(arch, tensors, f"{prefix}.post_attention_layernorm", h)
            if arch.has_sandwich_norms
            else None
        )
        self.qk_norm = self._load_qk_norm(arch, attn, tensors) if arch.has_qk_norm else None

    def _load_qk_norm(self, arch: Architecture, attn: str, tensors: TensorSource) -> RMSNorm:
        """One norm over query and key heads together: a weight row per head, ``[H + K, d]``."""
        shape = (self._head_dim,)
        query = tensors.get(f"{attn}.q_norm.weight", shape).expand(self._heads, -1)
        key = tensors.get(f"{attn}.k_norm.weight", shape).expand(self._kv_heads, -1)
        return RMSNorm(torch.cat((query, key)), arch.norm_eps, arch.norm_offset)

    def __call__(self, x: Tensor, state: PassState, slot: int) -> Tensor:
        """Return the half's contribution to the residual stream, ``[B, N, hidden]``."""
        batch, nodes, _ = x.shape
        heads, kv_heads, d = self._heads, self._kv_heads, self._head_dim
        qkv = self.qkv(self.norm(x)).view(batch, nodes, heads + 2 * kv_heads, d)
        rotated, values = torch.split(qkv, [heads + kv_heads, kv_heads], dim=2)
        if self.qk_norm is not None:
            rotated = self.qk_norm(rotated)
        cos, sin = state.rotary[self.shape.rope]
        rotated = torch.addcmul(rotated * cos, torch.roll(rotated, d // 2, -1), sin)
        query, keys = torch.split(rotated, [heads, kv_heads], dim=2)
        all_keys, all_values = state.cache.write(slot, keys, values)
        # Query heads of one key head become extra queries: no key is ever repeated in memory.
        query = query.view(batch, nodes, kv_heads, -1, d).permute(0, 2, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            query.reshape(batch, kv_heads, -1, d),
            all_keys,
            all_values,
            attn_mask=state.masks[self.shape.window],
            scale=self._scale,
        )
        mixed = mixed.view(batch, kv_heads, -1, nodes, d).permute(0, 3, 1, 2, 4)
        out = self.out(mixed.reshape(batch, nodes, heads * d))
        return out if self.post_norm is None else self.post_norm(out)


class MLP:
    """The gated feed-forward half."""

    def __init__(
        self,
        arch: Architecture,
        layer: int,
        tensors: TensorSource,
        storage: Storage | None = None,
    ) -> None:
        prefix = f"model.layers.{layer}"
        h, ffn = arch.hidden_size, arch.intermediate_size

        def bias(name: str, size: int) -> Tensor | None:
            return tensors.get(f"{prefix}.mlp.{name}.bias", (size,)) if arch.has_mlp_bias else None

        gate, up = (
            tensors.get(f"{prefix}.mlp.{name}.weight", (ffn, h))
            for name in ("gate_proj", "up_proj")
        )
        gate_bias, up_bias = bias("gate_proj", ffn), bias("up_proj", ffn)
        self.gate_up = GatedLinear(
            gate,
            up,
            (gate_bias, up_bias) if gate_bias is not None and up_bias is not None else None,
            is_silu=arch.activation == "silu",
            storage=storage,
        )
        down = tensors.get(f"{prefix}.mlp.down_proj.weight", (h, ffn))
        self.down = Linear(down, bias("down_proj", h), storage)
        before = "pre_feedforward" if arch.has_sandwich_norms else "post_attention"
        self.norm = _norm(arch, tensors, f"{prefix}.{before}_layernorm", h)
        self.post_norm = (
            _norm(arch, tensors, f"{prefix}.post_feedforward_layernorm", h)
            if arch.has_sandwich_norms
            else None
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Return the half's contribution to the residual stream, ``[B, N, hidden]``."""
        out = self.down(self.gate_up(self.norm(x)))
        return out if self.post_norm is None else self.post_norm(out)


PlannedBlock = tuple[Attention | None, int, MLP | None]
"""What a view runs of a block: attention, its cache slot, feed-forward."""

Plan = Sequence[PlannedBlock]
"""The blocks of a view, from the first to the last."""


def _norm(arch: Architecture, tensors: TensorSource, name: str, size: int) -> RMSNorm:
    return RMSNorm(tensors.get(f"{name}.weight", (size,)), arch.norm_eps, arch.norm_offset)


def final_norm(arch: Architecture, tensors: TensorSource) -> RMSNorm:
    """Return the norm in front of the language-model head."""
    return _norm(arch, tensors, "model.norm", arch.hidden_size)


def _at_least_float32(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype is torch.float64 else torch.float32
