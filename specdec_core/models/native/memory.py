"""Memory for weights that are read from beginning to end at every step."""

from __future__ import annotations

import mmap

import torch
from torch import Tensor

_CHUNK_BYTES = 64 << 20
_ALIGNMENT = 4096


class HugePages:
    """Holds tensors on huge pages where the system grants them.

    Address translation of small pages costs a decode step more than a tenth of its time. Huge
    pages must be asked for in large pieces, so tensors share chunks.
    """

    def __init__(self) -> None:
        self._chunk = mmap.mmap(-1, _ALIGNMENT)
        self._used = _ALIGNMENT

    def hold(self, tensor: Tensor) -> Tensor:
        """Return a contiguous copy of `tensor`."""
        num_bytes = tensor.numel() * tensor.element_size()
        if self._used + num_bytes > len(self._chunk):
            self._chunk = _anonymous(max(num_bytes, _CHUNK_BYTES))
            self._used = 0
        # The tensor keeps its chunk alive.
        flat = torch.frombuffer(
            self._chunk, dtype=tensor.dtype, count=tensor.numel(), offset=self._used
        )
        self._used += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return flat.view(tensor.shape).copy_(tensor)


def _anonymous(num_bytes: int) -> mmap.mmap:
    chunk = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        chunk.madvise(mmap.MADV_HUGEPAGE)
    return chunk
