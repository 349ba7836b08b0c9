"""Compares an output with a generation of plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.bench.differences import OutputDifference, first_difference
from specdec_core.decoding.sequence import Generation


def compare_outputs(
    reference: Generation, token_ids: Sequence[int], threshold: float
) -> OutputDifference | None:
    """Return the first difference of `token_ids` from the reference's output, None if equal.

    Args:
        reference: Plain decoding with recorded gaps.
        token_ids: The output to judge.
        threshold: Largest logit gap that rounding may turn over, at least 0; for sampled outputs
            of processed logits, so in units of the temperature.

    Raises:
        MeasurementError: if the outputs differ and the reference has no gaps.
    """
    ranked = () if reference.is_sampled else reference.top_k
    return first_difference(
        reference.token_ids, token_ids, reference.gaps, threshold, ranked=ranked
    )
