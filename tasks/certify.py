"""The certificate of a benchmark cell: are its outputs the target's own, and how is that known?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from db.cells import CellDifference, Certificate, LawTest
from db.store import Store
from specdec_core.bench.differences import TIE_GAPS, first_difference
from specdec_core.bench.proof import level_reached
from specdec_core.config.dtype import compute_type
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.records import SampleResult


def is_lossless(request: EvaluationRequest) -> bool:
    """Whether the verification rule of a request promises the law of the target alone."""
    return request.drafter.method == "none" or request.sampling.is_lossless


def is_coupled(request: EvaluationRequest) -> bool:
    """Whether outputs of a request must equal those of autoregressive decoding token for token."""
    if request.drafter.method == "none":
        return True
    return request.sampling.is_coupled_for(draws_candidates=request.drafter.draws_candidates)


def differing_items(
    store: Store, plain: EvaluationRequest, others: Sequence[EvaluationRequest]
) -> tuple[str, ...]:
    """Return the items that one of `others` answered otherwise than `plain`, in its order.

    Evaluations that are not stored as done answer nothing, and those that need not be equal are
    not looked at.
    """
    expected = {s.item_id: s.token_ids for s in store.evaluations.samples(plain.key)}
    differing = {
        sample.item_id
        for other in others
        if is_coupled(other)
        for sample in store.evaluations.samples(other.key)
        if sample.token_ids != expected.get(sample.item_id, sample.token_ids)
    }
    return tuple(item_id for item_id in plain.item_ids if item_id in differing)


def certify(
    request: EvaluationRequest,
    mine: Sequence[SampleResult],
    plain: Sequence[SampleResult],
    gaps: Mapping[str, SampleResult],
    law: LawTest | None = None,
) -> Certificate:
    """Return what the outputs of a request prove.

    Args:
        request: The request; its sampling says what is promised.
        mine: Its outputs.
        plain: Autoregressive outputs of the same items in the same order.
        gaps: Autoregressive outputs with logit gaps, by item, of items that were answered
            differently.
        law: Test of the sampled distribution, if one was made.
    """
    threshold = _tie_gap(request)
    truncates = request.sampling.truncates
    pairs = list(zip(mine, plain, strict=True))
    has_to_be_equal = is_coupled(request)
    differences = tuple(
        found
        for one, reference in (pairs if has_to_be_equal else ())
        if (found := _difference(one, reference, gaps, threshold, truncates=truncates)) is not None
    )
    kinds = [difference.kind for difference in differences]
    return Certificate(
        level=level_reached(
            kinds,
            dtype=request.dtype,
            is_lossless=is_lossless(request),
            is_coupled=has_to_be_equal,
            is_law_kept=law.is_kept if law else None,
        ),
        num_items=len(pairs),
        num_identical=sum(one.token_ids == other.token_ids for one, other in pairs),
        num_ties=kinds.count("tie"),
        num_defects=kinds.count("defect"),
        tie_gap=threshold,
        differences=differences,
        law=law,
    )


def _difference(
    one: SampleResult,
    reference: SampleResult,
    gaps: Mapping[str, SampleResult],
    threshold: float,
    *,
    truncates: bool,
) -> CellDifference | None:
    """Where an output leaves the autoregressive one, and whether rounding explains it.

    Where sampling truncates, rounding may move a token over the edge of what is kept, and the gap
    among the kept ones says nothing about that: another token there is no proof of a defect.
    """
    recorded = gaps.get(one.item_id)
    # Gaps of another output, from a target that does not repeat itself, judge nothing.
    is_same = recorded is not None and recorded.token_ids == reference.token_ids
    known = recorded.gaps if recorded is not None and is_same else None
    first = first_difference(reference.token_ids, one.token_ids, known, threshold)
    if first is None:
        return None
    is_replaced = first.reference_token is not None and first.other_token is not None
    is_open = truncates and is_replaced and first.kind == "defect"
    return CellDifference(
        item_id=one.item_id,
        position=first.position,
        expected_token=first.reference_token,
        token=first.other_token,
        gap=first.gap,
        kind="unknown" if is_open else first.kind,
    )


def _tie_gap(request: EvaluationRequest) -> float:
    """Largest gap that rounding explains; gaps of sampled outputs are in units of temperature."""
    gap = TIE_GAPS[compute_type(request.dtype)]
    return gap if request.sampling.is_greedy else gap / request.sampling.temperature
