"""Forward passes of one target through the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p, pointer

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specdec_core.models.architecture import Architecture
from specdec_core.models.cache import KVCache
from specdec_core.models.layers import MLP, Attention, Plan, RMSNorm
from specdec_core.models.linear import Linear
from specdec_core.models.native import structures
from specdec_core.models.native.build import Kernels
from specdec_core.models.rotary import RotaryTable
from specdec_core.models.taps import TapRecorder

IntArray = NDArray[np.int32]


def can_run(arch: Architecture, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernels know a model of this size, dtype and device."""
    sizes = (arch.hidden_size, arch.head_dim, arch.intermediate_size)
    is_even = all(size % 32 == 0 for size in sizes)
    return device.type == "cpu" and dtype is torch.bfloat16 and is_even


class Engine:
    """One target's weights as the kernels read them."""

    def __init__(
        self,
        arch: Architecture,
        kernels: Kernels,
        rotary: RotaryTable,
        final_norm: RMSNorm,
        head: Linear,
    ) -> None:
        self.arch, self.kernels, self.rotary = arch, kernels, rotary
        self._kept = (final_norm, head)
        self._num_logits = head.out_features
        self.model = structures.Model(
            hidden=arch.hidden_size,
            heads=arch.num_heads,
            kv_heads=arch.num_kv_heads,
            head_dim=arch.head_dim,
            features=arch.intermediate_size,
            is_silu=arch.activation == "silu",
            eps=arch.norm_eps,
            scale=arch.attention_scale,
            final_norm=final_norm.weight.data_ptr(),
            head=head.structure,
        )

    def blocks(self, plan: Plan) -> ctypes.Array[structures.Block]:
        """Return the blocks of a view from its plan."""
        found = [
            structures.Block(
                attention=pointer(self._attention(attention)) if attention else None,
                mlp=pointer(self._mlp(mlp)) if mlp else None,
                slot=slot,
            )
            for attention, slot, mlp in plan
        ]
        return (structures.Block * len(found))(*found)

    def _attention(self, half: Attention) -> structures.Attention:
        return structures.Attention(
            qkv=half.qkv.structure,
            out=half.out.structure,
            norm=half.norm.weight.data_ptr(),
            post_norm=_address(half.post_norm),
            qk_norm=_address(half.qk_norm),
            window=half.shape.window or 0,
            rotary=self.rotary.keys.index(half.shape.rope),
        )

    def _mlp(self, half: MLP) -> structures.Mlp:
        return structures.Mlp(
            gate_up=half.gate_up.structure,
            down=half.down.structure,
            norm=half.norm.weight.data_ptr(),
            post_norm=_address(half.post_norm),
        )

    def forward(
        self,
        blocks: ctypes.Array[structures.Block],
        embedded: Tensor,
        positions: NDArray[np.int64],
        ancestors: Sequence[NDArray[np.bool_]],
        cache: KVCache,
        recorder: TapRecorder | None = None,
    ) -> Tensor:
        """Run one pass for which `cache` has begun and return its logits ``[B, N, V]``.

        Args:
            blocks: What `blocks` returned for the view.
            embedded: Scaled embeddings ``[B, N, hidden]``.
            positions: Position ids ``[B, N]``.
            ancestors: Per sequence ``[n, M]``: which pending nodes each node of the pass sees.
            cache: The sequences' cache.
            recorder: Takes the hidden states that it wants.
        """
        batch, nodes, _ = embedded.shape
        embedded = embedded.contiguous()
        lengths = np.asarray(cache.lengths, dtype=np.int32)
        starts = np.asarray(cache.starts, dtype=np.int32)
        counts, extra = visible_pending(lengths, ancestors, nodes)
        places = positions.astype(np.int32)
        tables = self.rotary.tables(int(positions.max()))
        addresses = (c_void_p * (2 * len(tables)))(
            *(table.data_ptr() for pair in tables for table in pair)
        )
        logits = embedded.new_empty((batch, nodes, self._num_logits))
        taps = _tap_addresses(recorder, embedded, len(blocks)) if recorder is not None else None
        keys, values = cache.buffer
        slot_stride, batch_stride, head_stride = keys.stride()[:3]
        self.kernels.forward(
            self.model,
            blocks,
            structures.Pass(
                batch=batch,
                nodes=nodes,
                embedded=embedded.data_ptr(),
                lengths=lengths.ctypes.data,
                starts=starts.ctypes.data,
                counts=counts.ctypes.data,
                extra=extra.ctypes.data,
                max_extra=extra.shape[-1],
                positions=places.ctypes.data,
                rotary=ctypes.cast(addresses, c_void_p),
                keys=keys.data_ptr(),
                values=values.data_ptr(),
                slot_stride=slot_stride,
                batch_stride=batch_stride,
                head_stride=head_stride,
                logits=logits.data_ptr(),
                taps=ctypes.cast(taps, c_void_p) if taps is not None else None,
            ),
        )
        return logits


def visible_pending(
    lengths: IntArray, ancestors: Sequence[NDArray[np.bool_]], nodes: int
) -> tuple[IntArray, IntArray]:
    """Return how many cache rows behind the committed each node sees, and which.

    Returns:
        Counts ``[B, N]``, 0 for absent nodes, and rows ``[B, N, most]``, root first; entries
        behind a node's count are meaningless.
    """
    width = max(matrix.shape[1] for matrix in ancestors)
    counts = np.zeros((len(lengths), nodes), dtype=np.int32)
    extra = np.zeros((len(lengths), nodes, width), dtype=np.int32)
    for row, (length, matrix) in enumerate(zip(lengths, ancestors, strict=True)):
        size, num_pending = matrix.shape
        counts[row, :size] = matrix.sum(1)
        # A stable sort moves the visible columns to the front and keeps their order.
        extra[row, :size, :num_pending] = length + np.argsort(~matrix, axis=1, kind="stable")
    return counts, extra


def _tap_addresses(
    recorder: TapRecorder, embedded: Tensor, num_blocks: int
) -> ctypes.Array[c_void_p]:
    """Return where each hidden state goes, that of the final norm last; null for most."""
    addresses = (c_void_p * (num_blocks + 2))()
    for tap, hidden in recorder.make_room(embedded).items():
        addresses[tap] = hidden.data_ptr()  # the head's input is tap -1 and stands at the end
    return addresses


def _address(norm: RMSNorm | None) -> int | None:
    return norm.weight.data_ptr() if norm is not None else None
