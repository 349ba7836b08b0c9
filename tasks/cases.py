"""Held-out items beside each other: answered better, as well, or worse by the sparse target."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from specdec_core.data.records import Suite
from specdec_core.records import SampleResult
from tasks.report import Case, CaseCounts

_MAX_CASES = 2
_MAX_PROMPT_CHARACTERS = 2000
_SAME_SCORE = 1e-9  # scores that differ by no more are the same


def qualitative_cases(
    dense: Sequence[SampleResult], sparse: Sequence[SampleResult], suite: Suite
) -> tuple[Case, ...]:
    """Return a few items whose answer got better, stayed as good, or got worse.

    The largest changes of score come first; among equal scores, items whose text changed.
    """
    pairs = list(zip(dense, sparse, strict=True))
    scored = [(sparse.score or 0.0) - (dense.score or 0.0) for dense, sparse in pairs]
    order = sorted(range(len(pairs)), key=lambda i: (-scored[i], pairs[i][0].item_id))
    better = [i for i in order if scored[i] > _SAME_SCORE]
    worse = [i for i in reversed(order) if scored[i] < -_SAME_SCORE]
    same = [i for i in order if abs(scored[i]) <= _SAME_SCORE]
    same.sort(key=lambda i: pairs[i][0].answer == pairs[i][1].answer)
    return (
        *(_case(*pairs[i], "better", suite) for i in islice(better, _MAX_CASES)),
        *(_case(*pairs[i], "same", suite) for i in islice(same, _MAX_CASES)),
        *(_case(*pairs[i], "worse", suite) for i in islice(worse, _MAX_CASES)),
    )


def count_cases(dense: Sequence[SampleResult], sparse: Sequence[SampleResult]) -> CaseCounts | None:
    """Return how many scored items got better, stayed as good and got worse; None without scores.

    Source: TSS (its tables of cases).
    """
    changes = [
        other.score - one.score
        for one, other in zip(dense, sparse, strict=True)
        if one.score is not None and other.score is not None
    ]
    if not changes:
        return None
    better = sum(change > _SAME_SCORE for change in changes)
    worse = sum(change < -_SAME_SCORE for change in changes)
    return CaseCounts(better=better, same=len(changes) - better - worse, worse=worse)


def _case(dense: SampleResult, sparse: SampleResult, verdict: str, suite: Suite) -> Case:
    (item,) = suite.select([dense.item_id])
    return Case.model_validate(
        {
            "item_id": item.id,
            "verdict": verdict,
            "prompt": item.prompt[:_MAX_PROMPT_CHARACTERS],
            "reference": item.alternatives[0] if item.alternatives else None,
            "dense_text": dense.answer,
            "sparse_text": sparse.answer,
            "dense_score": dense.score,
            "sparse_score": sparse.score,
        }
    )
