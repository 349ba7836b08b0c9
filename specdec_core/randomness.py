"""The only source of random numbers: counters hashed with (seed, request, purpose, position).

A number depends on what it is for and on nothing else, so results do not change with the order of
requests, the batch or the number of workers, and the same seeds give the same noise to every
drafter. Numbers are the stream of SplitMix64 from a hashed start, read at any place at once.

Source: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = 2**64 - 1


def derive_seed(*parts: int | str) -> int:
    """Return a seed below 2**63 from numbers and names; stable over processes and versions."""
    text = "\0".join(repr(part if isinstance(part, str) else int(part)) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def numpy_generator(*parts: int | str) -> np.random.Generator:
    """Return numpy's generator of `derive_seed` of the parts, for draws on the host."""
    return np.random.default_rng(derive_seed(*parts))


def resampling_generator(seed: int | np.random.Generator) -> np.random.Generator:
    """Return numpy's generator of a user's own seed, or the one given."""
    return np.random.default_rng(seed)


def shuffling_generator(seed: int) -> random.Random:
    """Return Python's generator of a user's own seed; its shuffles are the same everywhere."""
    return random.Random(seed)


@dataclass(frozen=True, slots=True)
class Noise:
    """The random numbers of one request.

    Purposes keep uses apart: numbers for different purposes, positions or places are independent.

    Attributes:
        seed: Of the run.
        request: Of the request in it.
    """

    seed: int
    request: int = 0

    def uniform(self, purpose: str, position: int, index: int = 0) -> float:
        """Return number `index` of a place, uniform in [0, 1) with 53 bits."""
        start = self._start(purpose, position)
        return (_mix((start + (index + 1) * _GAMMA) & _MASK) >> 11) * 2.0**-53

    def gumbel(self, purpose: str, position: int, ids: torch.Tensor) -> torch.Tensor:
        """Return standard Gumbel noise for every id, float64, the shape and device of `ids`.

        The noise of an id does not depend on which others are asked for.

        Args:
            purpose: What it is for.
            position: Place in the sequence.
            ids: Numbers at least 0, int64.
        """
        uniform = uniform_stream(self._start(purpose, position), ids)
        return uniform.log_().neg_().log_().neg_()

    def _start(self, purpose: str, position: int) -> int:
        return derive_seed(self.seed, self.request, purpose, position)


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def uniform_stream(start: int, ids: torch.Tensor) -> torch.Tensor:
    """Return the numbers at places `ids` of the SplitMix64 stream of `start`, in (0, 1), float64.

    Args:
        start: State before the first number, below 2**64.
        ids: Places at least 0, int64, any shape and device.
    """
    # In place, as vocabularies are large: fresh memory costs more than the arithmetic.
    value = ids.add(1).mul_(_signed(_GAMMA)).add_(_signed(start))
    value.bitwise_xor_(_shift_right(value, 30)).mul_(_signed(_MIX_1))
    value.bitwise_xor_(_shift_right(value, 27)).mul_(_signed(_MIX_2))
    value.bitwise_xor_(_shift_right(value, 31))
    # One bit less than a double holds, so that half a step more is exact and never 1.
    return _shift_right(value, 12).double().add_(0.5).mul_(2.0**-52)


def _signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned number; products wrap around alike."""
    return value - 2**64 if value >= 2**63 else value


def _shift_right(value: torch.Tensor, num: int) -> torch.Tensor:
    """Shift int64 as if it had no sign."""
    return (value >> num).bitwise_and_((1 << (64 - num)) - 1)
