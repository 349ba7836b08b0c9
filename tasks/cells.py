"""One benchmark cell from its stored evaluations: figures, paired speedup, differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from db.schemas import BenchmarkCell, CellDifference, CellFigures, CellSample, Interval
from db.store import Store
from specdec_core.bench.differences import TIE_GAPS, first_difference
from specdec_core.bench.statistics import RequestTimes, speedup_interval
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import MeasurementError
from specdec_core.records import SampleResult
from tasks.heldout import to_interval
from tasks.jobs import JobFailure
from tasks.prepare import Workload

BASELINE_METHOD = "none"

Repeats = Sequence[tuple[SampleResult, ...]]


def cell_of(
    store: Store,
    run_id: str,
    workload: Workload,
    *,
    method: str,
    requests: Sequence[EvaluationRequest],
    baseline: Sequence[EvaluationRequest],
    failures: Mapping[str, JobFailure],
    gaps: Mapping[str, SampleResult],
) -> BenchmarkCell:
    """Return the cell of one method in one domain.

    Args:
        store: Where the evaluations are.
        run_id: Run of the cell.
        workload: Target and suite.
        method: Drafter text.
        requests: One evaluation per repeat.
        baseline: The same with autoregressive decoding.
        failures: What failed, by evaluation key; a cell with a failure has no figures.
        gaps: Autoregressive outputs with logit gaps, by item; those of items that this method
            answered differently are read.
    """
    failed = next((failures[r.key] for r in (*requests, *baseline) if r.key in failures), None)
    figures: CellFigures | None = None
    samples: tuple[CellSample, ...] = ()
    row = store.evaluations.row(requests[0].key)
    error = f"{failed.error_type}: {failed.message}" if failed else None
    if failed is None:
        mine = [store.evaluations.samples(request.key) for request in requests]
        plain = [store.evaluations.samples(request.key) for request in baseline]
        samples = _cell_samples(mine, plain)
        threshold = TIE_GAPS[workload.target.dtype]
        differences = _differences(mine[0], plain[0], gaps, threshold)
        figures = _figures(
            store, requests, plain, samples, differences, is_plain=method == BASELINE_METHOD
        )
    return BenchmarkCell(
        run_id=run_id,
        target=workload.target.reference,
        target_identity=workload.target.identity,
        dtype=workload.target.dtype,
        domain=workload.suite.domain,
        drafter=method,
        skip=requests[0].skip,
        status="failed" if failed else "done",
        error=error,
        suite_hash=workload.suite.content_hash,
        hardware=row.hardware if row else "",
        evaluation_key=requests[0].key,
        baseline_key=baseline[0].key,
        figures=figures,
        samples=samples,
    )


def differing_items(
    store: Store, plain: EvaluationRequest, others: Sequence[EvaluationRequest]
) -> tuple[str, ...]:
    """Return the items that one of `others` answered otherwise than `plain`, in its order.

    Evaluations that are not stored as done answer nothing.
    """
    expected = {s.item_id: s.token_ids for s in store.evaluations.samples(plain.key)}
    differing = {
        sample.item_id
        for other in others
        for sample in store.evaluations.samples(other.key)
        if sample.token_ids != expected.get(sample.item_id, sample.token_ids)
    }
    return tuple(item_id for item_id in plain.item_ids if item_id in differing)


def _differences(
    mine: Sequence[SampleResult],
    plain: Sequence[SampleResult],
    gaps: Mapping[str, SampleResult],
    threshold: float,
) -> tuple[CellDifference, ...]:
    """Where each output leaves the autoregressive one, and whether rounding explains it."""
    found = []
    for one, reference in zip(mine, plain, strict=True):
        recorded = gaps.get(one.item_id)
        # Gaps of another output, from a target that does not repeat itself, judge nothing.
        is_same = recorded is not None and recorded.token_ids == reference.token_ids
        known = recorded.gaps if recorded is not None and is_same else None
        first = first_difference(reference.token_ids, one.token_ids, known, threshold)
        if first is not None:
            found.append(
                CellDifference(
                    item_id=one.item_id, position=first.position, gap=first.gap, kind=first.kind
                )
            )
    return tuple(found)


def _cell_samples(mine: Repeats, plain: Repeats) -> tuple[CellSample, ...]:
    return tuple(
        CellSample(
            item_id=first.item_id,
            num_tokens=len(first.token_ids),
            num_steps=len(first.trace.committed),
            seconds=tuple(repeat[i].seconds or 0.0 for repeat in mine),
            baseline_seconds=tuple(repeat[i].seconds or 0.0 for repeat in plain),
        )
        for i, first in enumerate(mine[0])
    )


def _figures(
    store: Store,
    requests: Sequence[EvaluationRequest],
    plain: Repeats,
    samples: tuple[CellSample, ...],
    differences: tuple[CellDifference, ...],
    *,
    is_plain: bool,
) -> CellFigures:
    """Figures over all repeats: times summed, counts of the first repeat."""
    summary = store.evaluations.summary(requests[0].key)
    assert summary is not None
    rows = [store.evaluations.row(request.key) for request in requests]
    tokens = sum(max(0, sample.num_tokens - 1) * len(sample.seconds) for sample in samples)
    seconds = sum(sum(sample.seconds) for sample in samples)
    kinds = [difference.kind for difference in differences]
    return CellFigures(
        num_items=summary.num_samples,
        num_tokens=summary.num_tokens,
        acceptance_length=summary.acceptance_length,
        hit_rate=summary.hit_rate,
        metric=summary.metric,
        tokens_per_s=tokens / seconds if seconds else 0.0,
        speedup=None if is_plain else _speedup(samples, plain),
        num_identical=len(samples) - len(differences),
        num_ties=kinds.count("tie"),
        num_defects=kinds.count("defect"),
        differences=differences,
        peak_memory_bytes=max((row.peak_memory_bytes or 0) for row in rows if row) or None,
    )


def _speedup(samples: tuple[CellSample, ...], plain: Repeats) -> Interval | None:
    """Speedup over autoregressive decoding, paired by item, seconds summed over repeats."""
    usable = [
        (sample, other)
        for sample, other in zip(samples, plain[0], strict=True)
        if min(sample.num_tokens, len(other.token_ids)) > 1
        and sum(sample.seconds) > 0
        and sum(sample.baseline_seconds) > 0
    ]
    if not usable:
        return None
    method = RequestTimes(
        [float(sample.num_tokens - 1) for sample, _ in usable],
        [sum(sample.seconds) for sample, _ in usable],
    )
    base = RequestTimes(
        [float(len(other.token_ids) - 1) for _, other in usable],
        [sum(sample.baseline_seconds) for sample, _ in usable],
    )
    try:
        return to_interval(speedup_interval(method, base))
    except MeasurementError:
        return None
