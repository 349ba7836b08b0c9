"""The decoder layer of learned drafters, in the manner of every supported family.

Training and decoding run the same module: the one with gradients over whole sequences, the other
row by row behind a cache, on packed weights. Shapes: B sequences, N rows, H query heads, K
key-value heads, G = H / K, d head size, h hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from specdec_core.drafts.specs import BlockShape
from specdec_core.models.linear import GatedLinear, Linear, Storage


class Norm(nn.Module):
    """Root-mean-square norm over the last dimension, computed in at least float32."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1.0 - offset))
        self._eps, self._offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised `x`, same shape and dtype."""
        wide = x if x.dtype is torch.float64 else x.float()
        normed = functional.rms_norm(wide, wide.shape[-1:], eps=self._eps)
        return (normed * (self.weight.to(wide.dtype) + self._offset)).to(x.dtype)


def linear(inputs: int, outputs: int, *, bias: bool) -> nn.Linear:
    """Return a linear map whose weights are still to be set; nothing is drawn."""
    shaped = nn.Linear(inputs, outputs, bias=bias, device="meta")
    return shaped.to_empty(device="cpu")


def pack_linear(source: nn.Linear, storage: Storage) -> Linear:
    """Return a map for decoding with the weights of `source`."""
    bias = None if source.bias is None else source.bias.detach()
    return Linear(source.weight.detach(), bias, storage)


@dataclass(frozen=True, slots=True)
class _Packed:
    """A block's maps laid out for decoding."""

    qkv: Linear
    out: Linear
    gate_up: GatedLinear
    down: Linear


class DraftBlock(nn.Module):
    """One decoder layer without a norm on what enters attention; that is the drafter's business.

    Args:
        shape: Sizes and kinds of its parts.
        input_size: Width of what queries, keys and values are made from.
    """

    def __init__(self, shape: BlockShape, input_size: int) -> None:
        super().__init__()
        h, d, ffn = shape.hidden_size, shape.head_dim, shape.intermediate_size
        kv_rows = shape.num_kv_heads * d
        self.shape = shape
        self.q_proj = linear(input_size, shape.num_heads * d, bias=shape.has_qkv_bias)
        self.k_proj = linear(input_size, kv_rows, bias=shape.has_qkv_bias)
        self.v_proj = linear(input_size, kv_rows, bias=shape.has_qkv_bias)
        self.o_proj = linear(shape.num_heads * d, h, bias=shape.has_output_bias)
        self.gate_proj = linear(h, ffn, bias=shape.has_mlp_bias)
        self.up_proj = linear(h, ffn, bias=shape.has_mlp_bias)
        self.down_proj = linear(ffn, h, bias=shape.has_mlp_bias)

        def norm(size: int, *, is_there: bool = True) -> nn.Module:
            return Norm(size, shape.norm_eps, shape.norm_offset) if is_there else nn.Identity()

        self.q_norm = norm(d, is_there=shape.has_qk_norm)
        self.k_norm = norm(d, is_there=shape.has_qk_norm)
        self.mlp_norm = norm(h)
        self.post_attention_norm = norm(h, is_there=shape.has_sandwich_norms)
        self.post_mlp_norm = norm(h, is_there=shape.has_sandwich_norms)
        self._packed: _Packed | None = None

    def pack(self, storage: Storage) -> None:
        """Lay the maps out for decoding; from then on there are no gradients."""

        def joined(*maps: nn.Linear) -> tuple[Tensor, Tensor | None]:
            weight = torch.cat([one.weight.detach() for one in maps])
            has_bias = maps[0].bias is not None
            return weight, torch.cat([one.bias.detach() for one in maps]) if has_bias else None

        gate, up, biases = self.gate_proj, self.up_proj, None
        if self.shape.has_mlp_bias:
            biases = gate.bias.detach(), up.bias.detach()
        self._packed = _Packed(
            Linear(*joined(self.q_proj, self.k_proj, self.v_proj), storage),
            pack_linear(self.o_proj, storage),
            GatedLinear(
                gate.weight.detach(),
                up.weight.detach(),
                biases,
                is_silu=self.shape.activation == "silu",
                storage=storage,
            ),
            pack_linear(self.down_proj, storage),
        )

    def project(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return query ``[B, N, H, d]``, keys and values ``[B, N, K, d]``; the first two rotated.

        Args:
            x: ``[B, N, input_size]``.
            rotary: Cosine and signed sine ``[B, N, 1, d]``.
        """
        heads, kv_heads, d = self.shape.num_heads, self.shape.num_kv_heads, self.shape.head_dim
        if self._packed is not None:
            qkv = self._packed.qkv(x)
        else:
            qkv = torch.cat((self.q_proj(x), self.k_proj(x), self.v_proj(x)), -1)
        rows = qkv.view(*x.shape[:2], heads + 2 * kv_heads, d)
        query, keys, values = torch.split(rows, [heads, kv_heads, kv_heads], dim=2)
        return rotate(self.q_norm(query), rotary), rotate(self.k_norm(keys), rotary), values

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Return what leaves the layer, ``[B, N, h]``.

        Args:
            residual: ``[B, N, h]``: what attention's contribution is added to.
            mixed: ``[B, N, H, d]``: attention's mixture of values.
        """
        flat = mixed.flatten(2)
        out = self._packed.out(flat) if self._packed is not None else self.o_proj(flat)
        x: Tensor = residual + self.post_attention_norm(out)
        added: Tensor = self.post_mlp_norm(self._feed_forward(self.mlp_norm(x)))
        return x + added

    def _feed_forward(self, x: Tensor) -> Tensor:
        if self._packed is not None:
            return self._packed.down(self._packed.gate_up(x))
        gate = self.gate_proj(x)
        is_silu = self.shape.activation == "silu"
        gate = functional.silu(gate) if is_silu else functional.gelu(gate, approximate="tanh")
        out: Tensor = self.down_proj(gate * self.up_proj(x))
        return out

    def mix(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return the mixtures of cached values, ``[B, N, H, d]``.

        Query heads of one key head become extra queries: no key is repeated in memory.

        Args:
            query: ``[B, N, H, d]``.
            keys: ``[B, K, total, d]``.
            values: The same shape.
            mask: Added to scores, ``[B, 1, G * N, total]``; None where all is visible.
        """
        batch, nodes, heads, d = query.shape
        kv_heads = self.shape.num_kv_heads
        grouped = query.view(batch, nodes, kv_heads, -1, d).permute(0, 2, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            grouped.reshape(batch, kv_heads, -1, d),
            keys,
            values,
            attn_mask=mask,
            scale=self.shape.attention_scale,
        )
        ungrouped = mixed.view(batch, kv_heads, -1, nodes, d).permute(0, 3, 1, 2, 4)
        return ungrouped.reshape(batch, nodes, heads, d)

    def mix_causal(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the mixtures ``[B, N, H, d]`` where every row sees itself and those before it.

        Args:
            query: ``[B, N, H, d]``.
            keys: ``[B, N, K, d]``.
            values: The same shape.
        """
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            is_causal=True,
            scale=self.shape.attention_scale,
            enable_gqa=True,
        )
        return mixed.transpose(1, 2)


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Return heads ``[B, N, .., d]`` rotated to their positions.

    Args:
        x: Heads.
        rotary: Cosine and signed sine ``[B, N, 1, d]``.
    """
    cos, sin = rotary
    # Under autocast heads are narrower than the tables.
    return (x * cos + torch.roll(x, x.shape[-1] // 2, -1) * sin).to(x.dtype)
