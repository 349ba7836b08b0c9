"""How long steps and tokens take: percentiles over single steps, and over single requests.

Tokens leave a decoder in bursts, one burst per step, so the gap that a reader sees (a step) and
the pace of the text (a token) are two figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from specdec_core.errors import MeasurementError
from specdec_core.records import SampleResult

PERCENTILES = (50, 90, 99)


def step_milliseconds(samples: Iterable[SampleResult]) -> list[float]:
    """Return the milliseconds of every step of every sample that has them."""
    return [1000 * seconds for sample in samples for seconds in sample.step_seconds]


def token_milliseconds(samples: Iterable[SampleResult]) -> list[float]:
    """Return, per sample, decode milliseconds over the tokens after the first.

    Samples of one token, and those that were not timed, are left out.
    """
    return [
        1000 * sample.seconds / (len(sample.token_ids) - 1)
        for sample in samples
        if sample.seconds is not None and len(sample.token_ids) > 1
    ]


def percentiles(values: Sequence[float]) -> tuple[float, ...]:
    """Return the `PERCENTILES` of at least one value, with linear interpolation between two.

    Raises:
        MeasurementError: if there is no value.
    """
    if not values:
        raise MeasurementError("percentiles of no value: measure at least one step")
    return tuple(float(value) for value in np.percentile(values, PERCENTILES))
