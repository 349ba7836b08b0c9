"""Which halves a view runs, and which cache slot each of its layers has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdec_core.models.layers import PlannedBlock
from specdec_core.skip import SkipConfig

if TYPE_CHECKING:
    from specdec_core.models.target import Target


def number_slots(num_layers: int, skip: SkipConfig) -> list[int]:
    """Return the slot of every layer in a cache for `skip`, and behind them how many there are.

    A layer without attention needs none; the number it has all the same is the next one's.
    """
    slots = [0]
    for layer in range(num_layers):
        slots.append(slots[-1] + (not skip.skips_attention(layer)))
    return slots


def make_plan(target: Target, skip: SkipConfig, slots: Sequence[int]) -> list[PlannedBlock]:
    """Return what a view that leaves out `skip` runs of every block."""
    return [
        (
            None if skip.skips_attention(layer) else target.attention[layer],
            slots[layer],
            None if skip.skips_mlp(layer) else target.mlp[layer],
        )
        for layer in range(target.num_layers)
    ]
