"""The learning rate as a pure function of the step: a linear rise, then a cosine to zero."""

from __future__ import annotations

import math


def num_warmup_steps(num_steps: int, warmup: float) -> int:
    """Return how many of `num_steps` updates rise to the peak; `warmup` is their share, below 1."""
    return min(num_steps, math.ceil(warmup * num_steps))


def learning_rate(step: int, *, peak: float, num_steps: int, num_warmup: int) -> float:
    """Return the learning rate of one update.

    The rise reaches the peak in its last step and no step exceeds it; the cosine would reach zero
    one step behind the last, so that no update is wasted.

    Args:
        step: 0-based number of the update, below `num_steps`.
        peak: Highest rate.
        num_steps: Updates of the whole training.
        num_warmup: Updates that rise, at most `num_steps`; 0 starts at the peak.

    Raises:
        ValueError: if `step` is not one of the training.

    Source: SGDR (Loshchilov and Hutter 2017), equation 5 with one cycle down to zero.
    """
    if not 0 <= step < num_steps:
        raise ValueError(f"step {step} is not one of {num_steps}: count from 0")
    if step < num_warmup:
        return peak * (step + 1) / num_warmup
    top = max(num_warmup - 1, 0)
    return peak * 0.5 * (1.0 + math.cos(math.pi * (step - top) / (num_steps - top)))
