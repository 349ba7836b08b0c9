"""Hidden states of a target for those who ask: which there are, and how a pass collects them.

Tap k is the residual stream in front of block k of the dense target, so that 0 is the scaled
embedding and k the output of block k - 1; one more than the last block's number is the stream in
front of the final norm. `HEAD_INPUT` is what the final norm makes of it. Up to the number of
blocks these are the indices of the `hidden_states` of `transformers`, whose last entry is the
head's input. Views number blocks as the dense target does: in front of, inside and behind a
skipped block the stream is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.errors import ConfigError
from specdec_core.models.layers import RMSNorm

HEAD_INPUT = -1
"""The tap behind the final norm."""


def check_taps(taps: Sequence[int], num_layers: int) -> None:
    """Check that a target of so many blocks has these taps.

    Raises:
        ConfigError: if it lacks one.
    """
    absent = [tap for tap in taps if not HEAD_INPUT <= tap <= num_layers]
    if absent:
        raise ConfigError(
            f"hidden states {absent} were asked of a target with {num_layers} blocks: it has 0 "
            f"(embedding) to {num_layers} (behind the last block) and {HEAD_INPUT} (head's input)"
        )


class TapRecorder:
    """Collects the hidden states of one pass."""

    def __init__(self, taps: Sequence[int]) -> None:
        self._taps = tuple(taps)
        self._found: dict[int, Tensor] = {}

    def take(self, tap: int, hidden: Tensor) -> None:
        """Keep ``[B, N, hidden]``, never changed again, if this tap is wanted."""
        if tap in self._taps:
            self._found[tap] = hidden

    def finish(self, hidden: Tensor, norm: RMSNorm) -> None:
        """Keep what the final norm makes of the last stream if it is wanted."""
        if HEAD_INPUT in self._taps:
            self._found[HEAD_INPUT] = norm(hidden)

    def make_room(self, like: Tensor) -> dict[int, Tensor]:
        """Return memory by tap, each the shape of `like`, for a pass that writes them itself."""
        self._found = {tap: torch.empty_like(like) for tap in self._taps}
        return self._found

    def rows(self) -> Tensor:
        """Return the hidden states ``[B, N, T, hidden]``, taps in the order asked for."""
        return torch.stack([self._found[tap] for tap in self._taps], 2)
