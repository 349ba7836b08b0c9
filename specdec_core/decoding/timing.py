"""Seconds by phase, with the clock and the device handed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from specdec_core.records import PhaseSeconds

Phase = Literal["prefill", "draft", "forward", "verify", "commit"]


class PhaseTimer:
    """Adds the time since the previous lap to a phase; starts counting when it is made.

    Args:
        clock: Monotonic clock, seconds.
        synchronize: Waits until the device has finished all work; called before every reading of
            the clock. None where work is done when a call returns.
    """

    def __init__(
        self, clock: Callable[[], float], synchronize: Callable[[], None] | None = None
    ) -> None:
        self._clock = clock
        self._synchronize = synchronize
        self._seconds: dict[Phase, float] = {}
        self._last = self._split = self._read()

    def lap(self, phase: Phase) -> None:
        """Count the time since the previous lap as `phase`."""
        now = self._read()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def split(self) -> float:
        """Return the seconds from the previous split to the newest lap, without another reading."""
        seconds = self._last - self._split
        self._split = self._last
        return seconds

    @property
    def seconds(self) -> PhaseSeconds:
        """Seconds counted so far."""
        return PhaseSeconds(**self._seconds)

    def _read(self) -> float:
        if self._synchronize is not None:
            self._synchronize()
        return self._clock()


def synchronizer(device: torch.device) -> Callable[[], None] | None:
    """Return what waits for `device`; None for one whose calls return finished."""
    return torch.cuda.synchronize if device.type == "cuda" else None
