"""One benchmark cell from its stored evaluations: figures, certificate, raw timings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from db.cells import BenchmarkCell, CellSample, LawTest
from db.store import Store
from specdec_core.config.drafters import format_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.sampling import format_sampling
from specdec_core.records import PhaseSeconds, SampleResult
from tasks.certify import certify, is_coupled, is_lossless
from tasks.figures import Measured, figures_of
from tasks.jobs import JobFailure
from tasks.prepare import Workload

BASELINE_METHOD = "none"

_NO_SECONDS = PhaseSeconds()


@dataclass(frozen=True, slots=True)
class CellPlan:
    """The requests of one method on the prompts of one row, one per repeat.

    Attributes:
        label: Name of the row: the domain, with the suite where it was named.
        workload: Target and suite.
        requests: One evaluation per repeat.
    """

    label: str
    workload: Workload
    requests: tuple[EvaluationRequest, ...]

    @property
    def method(self) -> str:
        """Canonical drafter text."""
        return format_drafter(self.requests[0].drafter)


def measured_of(store: Store, cell: CellPlan, plain: CellPlan) -> Measured:
    """Return what is stored of a cell and of autoregressive decoding; both are done."""
    rows = [store.evaluations.row(request.key) for request in cell.requests]
    phases = [row.phases or _NO_SECONDS for row in rows if row]
    request = cell.requests[0]
    return Measured(
        mine=tuple(store.evaluations.samples(each.key) for each in cell.requests),
        plain=tuple(store.evaluations.samples(each.key) for each in plain.requests),
        phases=sum(phases, start=_NO_SECONDS),
        is_plain=cell.method == BASELINE_METHOD,
        needs_equal_lengths=is_lossless(request) and is_coupled(request),
        peak_memory_bytes=max((row.peak_memory_bytes or 0) for row in rows if row) or None,
    )


def done_cell(
    store: Store,
    run_id: str,
    cell: CellPlan,
    plain: CellPlan,
    measured: Measured,
    *,
    gaps: Mapping[str, SampleResult],
    law: LawTest | None = None,
) -> BenchmarkCell:
    """Return the record of a measured cell.

    Args:
        store: Where the evaluations are.
        run_id: Run of the cell.
        cell: What was asked.
        plain: The same of autoregressive decoding.
        measured: What was found.
        gaps: Autoregressive outputs with logit gaps, by item; those of items that this method
            answered differently are read.
        law: Test of the distribution that the method samples from, if one was made.
    """
    request = cell.requests[0]
    summary, row = store.evaluations.summary(request.key), store.evaluations.row(request.key)
    assert summary is not None
    assert row is not None
    return _blank(run_id, cell, plain).model_copy(
        update={
            "status": "done",
            "error": None,
            "hardware": row.hardware,
            "certificate": certify(request, measured.mine[0], measured.plain[0], gaps, law),
            "figures": figures_of(measured, summary.metric),
            "samples": _samples(measured),
        }
    )


def failed_cell(run_id: str, cell: CellPlan, plain: CellPlan, failure: JobFailure) -> BenchmarkCell:
    """Return the record of a cell of which an evaluation, or the baseline's, failed."""
    error = f"{failure.error_type}: {failure.message}"
    return _blank(run_id, cell, plain).model_copy(update={"error": error})


def _blank(run_id: str, cell: CellPlan, plain: CellPlan) -> BenchmarkCell:
    target, request = cell.workload.target, cell.requests[0]
    return BenchmarkCell(
        run_id=run_id,
        target=target.reference,
        target_identity=target.identity,
        dtype=target.dtype,
        domain=cell.label,
        drafter=cell.method,
        skip=request.skip,
        status="failed",
        suite_hash=cell.workload.suite.content_hash,
        evaluation_key=request.key,
        baseline_key=plain.requests[0].key,
        sampling=format_sampling(request.sampling),
        is_lossless=is_lossless(request),
        is_synthetic=request.drafter.is_synthetic,
    )


def _samples(measured: Measured) -> tuple[CellSample, ...]:
    return tuple(
        CellSample(
            item_id=first.item_id,
            num_tokens=len(first.token_ids),
            num_steps=len(first.trace.committed),
            seconds=tuple(repeat[i].seconds or 0.0 for repeat in measured.mine),
            baseline_seconds=tuple(repeat[i].seconds or 0.0 for repeat in measured.plain),
        )
        for i, first in enumerate(measured.mine[0])
    )
