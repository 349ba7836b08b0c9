"""Numbers that end a training when they are none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from specdec_core.errors import EvaluationFailedError
from specdec_core.training.workers import Workers

_SHOWN = 16


def are_finite(values: Mapping[str, float]) -> bool:
    """Return whether all values are finite numbers."""
    return all(map(math.isfinite, values.values()))


def refuse_unless_finite(
    what: str, value: float, sample_ids: Sequence[str], workers: Workers
) -> None:
    """End the training on every worker if a number is not finite; all workers have the same one.

    Args:
        what: Names the number, such as ``loss of step 7``.
        value: The number.
        sample_ids: Where it may come from, on this worker.
        workers: All of them call this together.

    Raises:
        EvaluationFailedError: if it is not; names the samples of all workers.
    """
    if math.isfinite(value):
        return
    names = _flat(workers.gather(list(sample_ids)))
    shown = ", ".join(names[:_SHOWN]) + (", .." if len(names) > _SHOWN else "")
    raise EvaluationFailedError(
        f"the {what} is {value}; samples: {shown or 'none'}: lower the learning rate, use "
        "precision float32, or leave these samples out; the newest checkpoint is whole"
    )


def _flat(parts: Iterable[Sequence[str]]) -> list[str]:
    return [name for part in parts for name in part]
