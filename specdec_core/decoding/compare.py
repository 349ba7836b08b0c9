"""Where two outputs part ways, and whether rounding explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from specdec_core.decoding.sequence import Generation
from specdec_core.errors import MeasurementError


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The first position at which an output is not the reference.

    Attributes:
        position: 0-based output position.
        reference_token: The reference's token there; None if it had ended.
        other_token: The other output's token there; None if it had ended.
        gap: The target's best minus its second best logit there, in the reference's own run; None
            if the reference had ended.
        kind: ``tie`` if the target nearly did not care and rounding may decide, else ``defect``.
    """

    position: int
    reference_token: int | None
    other_token: int | None
    gap: float | None
    kind: Literal["tie", "defect"]


def compare_outputs(
    reference: Generation, token_ids: Sequence[int], threshold: float
) -> OutputDifference | None:
    """Return the first difference of `token_ids` from the reference's output, None if equal.

    A difference is a tie if the gap is at most `threshold` and, where rankings were recorded, the
    other token is among them. An output that ends early or goes on is always a defect: stopping
    is decided by tokens, not by logits.

    Args:
        reference: Plain decoding with recorded gaps.
        token_ids: The output to judge.
        threshold: Largest logit gap that rounding may turn over, at least 0.

    Raises:
        MeasurementError: if the outputs differ and the reference has no gaps.
    """
    if reference.token_ids == tuple(token_ids):
        return None
    if len(reference.gaps) != len(reference.token_ids):
        raise MeasurementError(
            f"the reference has {len(reference.token_ids)} tokens and {len(reference.gaps)} gaps: "
            "decode it with record_gaps=True"
        )
    pairs = zip(reference.token_ids, token_ids, strict=False)
    shorter = min(len(reference.token_ids), len(token_ids))
    position = next((i for i, (mine, other) in enumerate(pairs) if mine != other), shorter)
    mine = _at(reference.token_ids, position)
    other = _at(token_ids, position)
    gap = reference.gaps[position] if mine is not None else None
    ranked = reference.top_k[position] if position < len(reference.top_k) else None
    is_ranked = ranked is None or len(ranked) < 2 or other in ranked
    is_tie = other is not None and gap is not None and gap <= threshold and is_ranked
    return OutputDifference(position, mine, other, gap, "tie" if is_tie else "defect")


def _at(token_ids: Sequence[int], position: int) -> int | None:
    return token_ids[position] if position < len(token_ids) else None
