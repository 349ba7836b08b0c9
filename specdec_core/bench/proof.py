"""What an evaluation proves about outputs being the target's own, in the terms of the manual."""

from __future__ import annotations

from collections.abc import Collection

from specdec_core.config.dtype import DType, compute_type
from specdec_core.records import DifferenceKind, ProofLevel


def level_reached(
    kinds: Collection[DifferenceKind],
    *,
    dtype: DType,
    is_lossless: bool = True,
    is_coupled: bool = True,
    is_law_kept: bool | None = None,
) -> ProofLevel:
    """Return the level that the evidence of one evaluation reaches.

    A rule that does not promise the target's own output is ``lossy`` whatever came out. Where
    speculative and plain decoding are bound to agree token for token (greedy, or sampled with
    shared noise), their outputs are compared: all equal in float64 is ``exact``; all equal up to
    near ties is ``up-to-ties``. Where they only have the distribution in common, its test decides.

    Args:
        kinds: One per output that differs from plain decoding.
        dtype: What the target ran in; plain decoding ran on the same weights, rounded or not.
        is_lossless: Whether the verification rule promises the target's own output.
        is_coupled: Whether outputs are bound to be equal, not only equally distributed.
        is_law_kept: Whether the test of the sampled distribution was passed; None where none was
            made or its negative control passed too.
    """
    if not is_lossless:
        return "lossy"
    if is_law_kept is False:
        return "defect"
    if not is_coupled:
        return "same-distribution" if is_law_kept else "unproven"
    if "defect" in kinds:
        return "defect"
    if "unknown" in kinds:
        return "unproven"
    return "exact" if not kinds and compute_type(dtype) == "float64" else "up-to-ties"
