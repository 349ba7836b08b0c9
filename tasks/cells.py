"""One benchmark cell from its stored evaluations: pooled figures and paired speedup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from db.schemas import BenchmarkCell, CellFigures, CellSample, Interval
from db.store import Store
from specdec_core.bench.statistics import RequestTimes, speedup_interval
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import MeasurementError
from specdec_core.records import SampleResult
from tasks.heldout import to_interval
from tasks.jobs import JobFailure
from tasks.prepare import Workload

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
        figures = _figures(store, requests, mine, plain, samples, is_plain=method == "none")
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
    mine: Repeats,
    plain: Repeats,
    samples: tuple[CellSample, ...],
    *,
    is_plain: bool,
) -> CellFigures:
    """Figures over all repeats: times summed, counts of the first repeat."""
    summary = store.evaluations.summary(requests[0].key)
    assert summary is not None
    rows = [store.evaluations.row(request.key) for request in requests]
    tokens = sum(max(0, sample.num_tokens - 1) * len(sample.seconds) for sample in samples)
    seconds = sum(sum(sample.seconds) for sample in samples)
    same = sum(a.token_ids == b.token_ids for a, b in zip(mine[0], plain[0], strict=True))
    return CellFigures(
        num_items=summary.num_samples,
        num_tokens=summary.num_tokens,
        acceptance_length=summary.acceptance_length,
        hit_rate=summary.hit_rate,
        metric=summary.metric,
        tokens_per_s=tokens / seconds if seconds else 0.0,
        speedup=None if is_plain else _speedup(samples, plain),
        num_identical=same,
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
