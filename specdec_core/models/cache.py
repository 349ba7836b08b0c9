"""Keys and values of committed tokens, and of tree nodes until they are verified."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from specdec_core.errors import CacheDesyncError


class KVCache:
    """Static key-value buffers of a batch of sequences, one slot per kept attention layer.

    A forward pass writes the rows of its tree nodes behind the committed rows; they stay pending
    until `commit` keeps one path of them. `lengths` counts committed rows per sequence. A tree
    may be run in parts, each behind the pending rows of those before. `starts` are the first rows
    that the last pass wrote.

    Layout: ``[2, slots, B, H_kv, capacity, d]``, keys first.
    """

    def __init__(self, buffer: Tensor, lengths: list[int]) -> None:
        self.buffer = buffer
        self.lengths = lengths
        self._pending = [0] * len(lengths)
        self._rows: tuple[Tensor, Tensor] | None = None
        self.starts = list(lengths)
        self._total = 0

    @classmethod
    def allocate(
        cls, shape: tuple[int, int, int, int, int, int], dtype: torch.dtype, device: torch.device
    ) -> KVCache:
        """Return an empty cache with a buffer of its own.

        Args:
            shape: As in the layout above; its capacity includes pending rows.
            dtype: The model's.
            device: The model's.
        """
        # Zeros, not uninitialised memory: masked rows still enter products, and 0 * NaN is NaN.
        return cls(torch.zeros(shape, dtype=dtype, device=device), [0] * shape[2])

    @property
    def batch_size(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @property
    def capacity(self) -> int:
        """Rows per sequence."""
        return self.buffer.shape[4]

    @property
    def pending(self) -> list[int]:
        """Pending rows of every sequence."""
        return list(self._pending)

    @property
    def num_bytes(self) -> int:
        """Memory of the buffers, bytes."""
        return self.buffer.numel() * self.buffer.element_size()

    def begin(self, num_nodes: Sequence[int], *, is_continued: bool = False) -> int:
        """Reserve rows for a forward pass over `num_nodes` nodes per sequence.

        Args:
            num_nodes: New nodes per sequence.
            is_continued: Whether they belong to the tree whose rows are pending, and go behind.

        Returns:
            Number of rows any query of this pass may look at.

        Raises:
            CacheDesyncError: if rows of the last pass are still pending and it is not continued,
                or capacity is exceeded.
        """
        if any(self._pending) and not is_continued:
            raise CacheDesyncError("forward before commit: rows of the last pass are still pending")
        width = max(num_nodes)
        starts = [sum(each) for each in zip(self.lengths, self._pending, strict=True)]
        self._total = max(starts) + width
        if self._total > self.capacity:
            raise CacheDesyncError(
                f"cache of {self.capacity} rows cannot take {width} nodes behind "
                f"{max(starts)} committed rows: allocate a larger one"
            )
        self._pending = [sum(each) for each in zip(self._pending, num_nodes, strict=True)]
        self.starts = starts
        if all(start == starts[0] for start in starts):
            self._rows = None
        else:
            rows = np.asarray(starts)[:, None] + np.arange(width)
            batch = np.arange(self.batch_size)[:, None]
            device = self.buffer.device
            self._rows = torch.from_numpy(batch).to(device), torch.from_numpy(rows).to(device)
        return self._total

    def write(self, slot: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store the pass's rows and return all rows its queries may look at; see `RowStore`."""
        width = keys.shape[1]
        for buffer, new in ((self.buffer[0, slot], keys), (self.buffer[1, slot], values)):
            if self._rows is None:
                start = self.starts[0]
                buffer[:, :, start : start + width] = new.transpose(1, 2)
            else:
                batch, rows = self._rows
                buffer[batch, :, rows] = new
        return (
            self.buffer[0, slot, :, :, : self._total],
            self.buffer[1, slot, :, :, : self._total],
        )

    def written(self, slot: int) -> Tensor:
        """Rows of the last pass in one slot, ``[2, B, H_kv, N, d]``, sharing their storage.

        Its sequences must have begun it with equally many rows.
        """
        assert self._rows is None
        return self.buffer[:, slot, :, :, self.starts[0] : self._total]

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keep one root path of the pending nodes per sequence and drop the others.

        Args:
            paths: Node indices per sequence, strictly increasing, starting at the root 0.

        Raises:
            CacheDesyncError: if there is no pending pass or a path does not fit it.
        """
        if len(paths) != self.batch_size:
            raise CacheDesyncError(f"commit of {len(paths)} paths for {self.batch_size} sequences")
        for row, path in enumerate(paths):
            ordered = all(a < b for a, b in pairwise(path))
            if not path or path[0] != 0 or not ordered or path[-1] >= self._pending[row]:
                raise CacheDesyncError(
                    f"path {list(path)} does not fit {self._pending[row]} pending nodes: it must "
                    "start at the root and increase"
                )
            length = self.lengths[row]
            if path[-1] != len(path) - 1:
                source = torch.tensor([length + node for node in path], device=self.buffer.device)
                rows = self.buffer[:, :, row]
                rows[..., length : length + len(path), :] = rows.index_select(-2, source)
            self.lengths[row] = length + len(path)
            self._pending[row] = 0

    def truncate(self, num_nodes: Sequence[int]) -> None:
        """Drop pending rows behind the first `num_nodes` of every sequence.

        Raises:
            CacheDesyncError: if a number is negative or more than is pending.
        """
        for row, (now, wanted) in enumerate(zip(self._pending, num_nodes, strict=True)):
            if not 0 <= wanted <= now:
                raise CacheDesyncError(f"truncation of sequence {row} from {now} to {wanted} nodes")
        self._pending = list(num_nodes)

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` rows per sequence, by at least doubling where there is none."""
        if capacity <= self.capacity:
            return
        shape = list(self.buffer.shape)
        shape[4] = max(capacity, 2 * self.capacity)
        larger = self.buffer.new_zeros(shape)
        larger[..., : self.capacity, :] = self.buffer
        self.buffer = larger

    def rollback(self, lengths: Sequence[int]) -> None:
        """Drop committed rows behind `lengths`, and any pending rows.

        Raises:
            CacheDesyncError: if a length is negative or more than is committed.
        """
        for row, (now, wanted) in enumerate(zip(self.lengths, lengths, strict=True)):
            if not 0 <= wanted <= now:
                raise CacheDesyncError(f"rollback of sequence {row} from {now} to {wanted} rows")
        self.lengths = list(lengths)
        self._pending = [0] * self.batch_size

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all sequences but `rows`, which become sequences 0, 1, .. in the given order.

        Only sequences that change place are copied.

        Raises:
            CacheDesyncError: if rows of the last pass are still pending.
        """
        if any(self._pending):
            raise CacheDesyncError("keep before commit: rows of the last pass are still pending")
        used = max((self.lengths[row] for row in rows), default=0)
        moves = [(new, old) for new, old in enumerate(rows) if new != old]
        if moves:
            new_rows = torch.tensor([new for new, _ in moves], device=self.buffer.device)
            old_rows = torch.tensor([old for _, old in moves], device=self.buffer.device)
            moved = self.buffer[:, :, :, :, :used].index_select(2, old_rows)
            self.buffer[:, :, :, :, :used].index_copy_(2, new_rows, moved)
        self.buffer = self.buffer[:, :, : len(rows)]
        self.lengths = [self.lengths[row] for row in rows]
        self._pending = [0] * len(rows)

    def narrow(self, start: int, stop: int) -> KVCache:
        """Return a cache over sequences ``start..stop-1`` that shares their storage."""
        return KVCache(self.buffer[:, :, start:stop], self.lengths[start:stop])

    def load_prefix(self, prefix: Tensor) -> None:
        """Start every sequence with the rows of a shared prefix ``[2, slots, 1, H_kv, P, d]``."""
        length = prefix.shape[4]
        self.buffer[:, :, :, :, :length] = prefix
        self.lengths = [length] * self.batch_size

    def rows(self, sequence: int) -> Tensor:
        """Committed rows of one sequence, ``[2, slots, H_kv, length, d]``."""
        return self.buffer[:, :, sequence, :, : self.lengths[sequence]]

    def export_prefix(self) -> Tensor:
        """Return the committed rows of the only sequence as a prefix for `load_prefix`."""
        return self.buffer[:, :, :1, :, : self.lengths[0]].clone()
