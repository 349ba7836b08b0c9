"""What held-out answers cost besides verify steps: seconds per useful token, and memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from db.schemas import Interval
from specdec_core.bench.statistics import (
    IntervalEstimate,
    relative_change_of_means,
    relative_change_of_pooled_ratios,
)
from specdec_core.errors import MeasurementError
from specdec_core.records import EvaluationSummary, SampleResult


def to_interval(estimate: IntervalEstimate) -> Interval:
    """Return the stored form of an interval."""
    return Interval(
        estimate=estimate.estimate,
        low=min(estimate.low, estimate.estimate),
        high=max(estimate.high, estimate.estimate),
        confidence=estimate.confidence,
    )


def useful_figures(
    dense: Sequence[SampleResult], sparse: Sequence[SampleResult], notes: list[str]
) -> dict[str, Any]:
    """Return rates of tokens up to the end of the answer, as fields of the comparison.

    As in the plain rate, the first token is the prefill's and the seconds are those of decoding.
    What comes behind the answer costs seconds and counts for nothing.
    """
    one, other = _useful(dense), _useful(sparse)
    if not sum(one[0]) or not sum(one[1]) or not sum(other[1]):
        notes.append("dense answers have no tokens of use after the first: no rate of useful ones")
        return {}
    try:
        found = to_interval(relative_change_of_pooled_ratios(one, other))
    except MeasurementError:
        notes.append("too few useful tokens for an interval of their rate")
        return {}
    ratio = {name: getattr(found, name) + 1.0 for name in ("estimate", "low", "high")}
    return {
        "useful_tokens_per_s_dense": math.fsum(one[0]) / math.fsum(one[1]),
        "useful_tokens_per_s_sparse": math.fsum(other[0]) / math.fsum(other[1]),
        "useful_speedup": Interval(**ratio, confidence=found.confidence),
    }


def memory_of(summary: EvaluationSummary | None, samples: Sequence[SampleResult]) -> list[float]:
    """Return bytes of weights and of the full cache of each request; empty where unknown."""
    if summary is None or summary.weight_bytes is None or summary.cache_bytes_per_token is None:
        return []
    return [
        float(
            summary.weight_bytes
            + summary.cache_bytes_per_token * (one.prompt_tokens + len(one.token_ids))
        )
        for one in samples
    ]


def memory_figures(dense: Sequence[float], sparse: Sequence[float]) -> dict[str, Any]:
    """Return memory per request as fields of the comparison; none where one side is unknown."""
    if not dense or len(dense) != len(sparse):
        return {}
    return {
        "memory_dense_bytes": math.fsum(dense) / len(dense),
        "memory_sparse_bytes": math.fsum(sparse) / len(sparse),
        "memory_change": to_interval(relative_change_of_means(dense, sparse)),
    }


def _useful(samples: Sequence[SampleResult]) -> tuple[list[float], list[float]]:
    tokens = [float(max(sample.useful_tokens - 1, 0)) for sample in samples]
    return tokens, [sample.seconds or 0.0 for sample in samples]
