"""Attention masks and positions of token trees behind ragged caches."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def tree_positions(lengths: Sequence[int], depths: Sequence[Sequence[int]]) -> IntArray:
    """Return position ids ``[B, N]``: committed length plus depth, 0 for absent nodes."""
    width = max(len(depth) for depth in depths)
    positions = np.zeros((len(lengths), width), dtype=np.int64)
    for row, (length, depth) in enumerate(zip(lengths, depths, strict=True)):
        positions[row, : len(depth)] = length + np.asarray(depth)
    return positions


def visible_rows(lengths: Sequence[int], ancestors: Sequence[BoolArray], total: int) -> BoolArray:
    """Return which cache rows each node sees, ``[B, N, total]``, before any sliding window.

    A node sees every committed row of its sequence and its own ancestors, itself included.
    Absent nodes see row 0, so that their softmax stays finite; their output is never read.
    """
    width = max(len(matrix) for matrix in ancestors)
    seen = np.zeros((len(lengths), width, total), dtype=np.bool_)
    for row, (length, matrix) in enumerate(zip(lengths, ancestors, strict=True)):
        size, num_pending = matrix.shape
        seen[row, :size, :length] = True
        seen[row, :size, length : length + num_pending] = matrix
        seen[row, size:, 0] = True
    return seen


def within_window(
    lengths: Sequence[int],
    positions: IntArray,
    pending_positions: IntArray,
    total: int,
    window: int,
) -> BoolArray:
    """Return which rows lie inside a sliding window of each node, ``[B, N, total]``.

    The window counts positions, not rows: siblings share a position. `pending_positions` are
    those of all pending nodes, this pass's last.
    """
    key_positions = np.broadcast_to(np.arange(total), (len(lengths), total)).copy()
    for row, length in enumerate(lengths):
        pending = min(pending_positions.shape[1], total - length)
        key_positions[row, length : length + pending] = pending_positions[row, :pending]
    distance = positions[:, :, None] - key_positions[:, None, :]
    return distance < window


def additive_masks(
    lengths: Sequence[int],
    ancestors: Sequence[BoolArray],
    positions: IntArray,
    total: int,
    windows: Collection[int | None],
    *,
    num_groups: int,
    dtype: torch.dtype,
    device: torch.device,
    pending_positions: IntArray,
) -> dict[int | None, Tensor | None]:
    """Return one additive mask ``[B, 1, G * N, total]`` per window, None where all is visible.

    Args:
        lengths: Committed rows per sequence.
        ancestors: Ancestor matrix ``[n, M]`` per sequence, row = node of this pass, column =
            pending node, itself included.
        positions: Position ids ``[B, N]``.
        total: Rows any query may look at.
        windows: Sliding windows of the model's layers, None for full attention.
        num_groups: Query heads per key head G, folded into the query dimension.
        dtype: Dtype of the mask.
        device: Device of the mask.
        pending_positions: Position ids ``[B, M]`` of all pending nodes, this pass's last.
    """
    seen = visible_rows(lengths, ancestors, total)
    last_position = int(positions.max())
    narrow = [window for window in windows if window is not None and window <= last_position]
    masks: dict[int | None, Tensor | None] = {}
    if len(narrow) < len(windows):
        full = _to_additive(seen, num_groups, dtype, device)
        masks = dict.fromkeys(windows, full)
    for window in narrow:
        allowed = seen & within_window(lengths, positions, pending_positions, total, window)
        masks[window] = _to_additive(allowed, num_groups, dtype, device)
    return masks


def _to_additive(
    seen: BoolArray, num_groups: int, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    if seen.all():
        return None
    blocked = torch.from_numpy(~seen).to(device)
    mask = torch.zeros(seen.shape, dtype=dtype, device=device)
    mask.masked_fill_(blocked, torch.finfo(dtype).min)
    return mask.repeat(1, num_groups, 1).unsqueeze(1)
