"""Where two outputs part ways, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from specdec_core.config.dtype import ComputeType
from specdec_core.errors import MeasurementError
from specdec_core.records import DifferenceKind

TIE_GAPS: Mapping[ComputeType, float] = MappingProxyType(
    {
        # Two steps between neighbouring values at logits of 16 to 32, where one forward over
        # another number of rows may round differently.
        "bfloat16": 0.25,
        "float16": 2.0**-5,
        # Here the sums over thousands of products differ by more than a step of the result.
        "float32": 1e-3,
        "float64": 1e-9,
    }
)
"""Largest logit gap that rounding may turn over, by the type the target computes in."""


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The first position at which an output is not the reference.

    Attributes:
        position: 0-based output position.
        reference_token: The reference's token there; None if it had ended.
        other_token: The other output's token there; None if it had ended.
        gap: The target's best minus its second best logit there, in the reference's own run; None
            if the reference had ended or its gaps are not known.
        kind: ``tie`` if the target nearly did not care and rounding may decide, else ``defect``;
            ``unknown`` without gaps to judge by.
    """

    position: int
    reference_token: int | None
    other_token: int | None
    gap: float | None
    kind: DifferenceKind


def first_difference(
    reference: Sequence[int],
    other: Sequence[int],
    gaps: Sequence[float] | None,
    threshold: float,
    *,
    ranked: Sequence[Sequence[int]] = (),
) -> OutputDifference | None:
    """Return the first difference of `other` from the reference, None if they are equal.

    A difference is a tie if the gap is at most `threshold` and, where rankings were recorded, the
    other token is among them. An output that ends early or goes on is always a defect: stopping
    is decided by tokens, not by logits.

    Args:
        reference: Output of plain decoding.
        other: The output to judge.
        gaps: The target's top-2 logit gap per position of the reference; None if not known.
        threshold: Largest logit gap that rounding may turn over, at least 0; see `TIE_GAPS`.
        ranked: Ids ranked best per position of the reference, if recorded.

    Raises:
        MeasurementError: if the outputs differ and there is not one gap per reference token.
    """
    if list(reference) == list(other):
        return None
    if gaps is not None and len(gaps) != len(reference):
        raise MeasurementError(
            f"the reference has {len(reference)} tokens and {len(gaps)} gaps: decode it with "
            "record_gaps=True"
        )
    pairs = zip(reference, other, strict=False)
    shorter = min(len(reference), len(other))
    position = next((i for i, (mine, its) in enumerate(pairs) if mine != its), shorter)
    mine, its = _at(reference, position), _at(other, position)
    gap = gaps[position] if gaps is not None and mine is not None else None
    ids = ranked[position] if position < len(ranked) else ()
    is_ranked = len(ids) < 2 or its in ids
    is_tie = its is not None and gap is not None and gap <= threshold and is_ranked
    kind: DifferenceKind = "tie" if is_tie else "defect"
    return OutputDifference(position, mine, its, gap, "unknown" if gaps is None else kind)


def _at(token_ids: Sequence[int], position: int) -> int | None:
    return token_ids[position] if position < len(token_ids) else None
