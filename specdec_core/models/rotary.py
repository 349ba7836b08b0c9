"""Rotary position tables, extended as positions are reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from specdec_core.models.architecture import Architecture, rope_frequencies

_FIRST_ROWS = 1024


class RotaryTable:
    """Cosines and signed sines by position, one pair of tables per rotary key.

    The sine's first half is negated, so that rotating is
    ``x * cos + roll(x, d / 2) * sin`` without splitting heads.

    Source: Su et al. 2021, RoFormer, equation 34.
    """

    def __init__(
        self, arch: Architecture, config: Any, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._dtype, self._device = dtype, device
        self.keys = sorted({shape.rope for shape in arch.layers}, key=str)
        self._frequencies = {key: rope_frequencies(config, key) for key in self.keys}
        self._num_rows = 0
        self._tables: dict[str | None, tuple[Tensor, Tensor]] = {}

    def at(self, positions: Tensor, last: int) -> dict[str | None, tuple[Tensor, Tensor]]:
        """Return cosine and signed sine ``[B, N, 1, d]`` for `positions`, whose maximum is `last`.

        Positions past the model's context are computed as well; refusing them is the caller's job.
        """
        return self.gather(self.tables(last), positions)

    def gather(
        self, tables: Sequence[tuple[Tensor, Tensor]], positions: Tensor
    ) -> dict[str | None, tuple[Tensor, Tensor]]:
        """Return rows of `tables`, which `tables` returned, as `at` does."""
        return {
            key: (cos[positions].unsqueeze(2), sin[positions].unsqueeze(2))
            for key, (cos, sin) in zip(self.keys, tables, strict=True)
        }

    def tables(self, last: int) -> list[tuple[Tensor, Tensor]]:
        """Return cosine and signed sine ``[positions, d]`` up to `last` at least, by `keys`."""
        if last >= self._num_rows:
            self._extend(max(_FIRST_ROWS, 2 * (last + 1)))
        return [self._tables[key] for key in self.keys]

    def _extend(self, num_rows: int) -> None:
        rows = torch.arange(num_rows, dtype=torch.float32)
        for key, (frequencies, factor) in self._frequencies.items():
            angles = rows[:, None] * frequencies[None, :].cpu()
            cos, sin = angles.cos() * factor, angles.sin() * factor
            tables = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
            self._tables[key] = (
                tables[0].to(self._device, self._dtype),
                tables[1].to(self._device, self._dtype),
            )
        self._num_rows = num_rows
