"""Benchmark cells and calibrations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from db.api.common import Page, Paging, StoreDependency, page_of, problems
from db.api.problems import ProblemError
from db.cells import BenchmarkCell, CellDifference
from db.schemas import CalibrationRecord
from specdec_core.config.base import Record
from specdec_core.records import SampleResult, TokenOrigin

router = APIRouter()


class BenchmarkQuery(Paging):
    """Filters of the benchmark list."""

    run_id: str | None = Field(None, min_length=1)
    domain: str | None = Field(None, min_length=1)
    drafter: str | None = Field(None, min_length=1, description="as stored")


class CalibrationQuery(Paging):
    """Filters of the calibration list."""

    target: str | None = Field(None, min_length=1, description="model reference or identity")
    hardware: str | None = Field(None, min_length=1, description="as stored")


@router.get("/benchmarks", tags=["benchmarks"], summary="List benchmark cells")
def list_benchmarks(
    store: StoreDependency, query: Annotated[BenchmarkQuery, Query()]
) -> Page[BenchmarkCell]:
    """Return the cells that match every filter given, raw timings included."""
    filters = query.model_dump(exclude={"limit", "offset"})
    cells = store.benchmarks.list(**filters, limit=query.limit, offset=query.offset)
    return page_of(cells, store.benchmarks.count(**filters), query)


class OutputQuery(Record):
    """Which output of which cell."""

    run_id: str = Field(min_length=1)
    domain: str = Field(min_length=1, description="as stored, such as chat@spec_bench")
    drafter: str = Field(min_length=1, description="as stored")
    item_id: str = Field(min_length=1)


class OutputPair(Record):
    """One prompt answered by a method and by autoregressive decoding, token by token."""

    run_id: str
    domain: str
    drafter: str
    is_lossless: bool
    is_synthetic: bool
    method: SampleResult = Field(description="the method's output, first repeat")
    origins: tuple[TokenOrigin, ...] = Field(
        description="where each token of the method's output came from: a number is the draft depth"
    )
    baseline: SampleResult = Field(description="autoregressive output, first repeat")
    difference: CellDifference | None = Field(None, description="null where they are equal")


@router.get(
    "/benchmarks/outputs",
    tags=["benchmarks"],
    summary="Token ids of a method and of autoregressive decoding for one prompt",
    responses=problems(HTTPStatus.NOT_FOUND),
)
def benchmark_outputs(store: StoreDependency, query: Annotated[OutputQuery, Query()]) -> OutputPair:
    """Return both outputs with token ids, text and step trace, and where they part."""
    where = query.model_dump(exclude={"item_id"})
    cell = next(iter(store.benchmarks.list(**where)), None)
    if cell is None:
        raise ProblemError(
            HTTPStatus.NOT_FOUND,
            "cell-not-found",
            f"run {query.run_id!r} has no cell {query.domain!r}, {query.drafter!r}: list its "
            f"cells with GET /api/v1/benchmarks?run_id={query.run_id}",
        )
    method, baseline = (
        None if key is None else store.evaluations.sample(key, query.item_id)
        for key in (cell.evaluation_key, cell.baseline_key)
    )
    if method is None or baseline is None:
        raise ProblemError(
            HTTPStatus.NOT_FOUND,
            "item-not-found",
            f"cell {query.domain!r}, {query.drafter!r} has no outputs for item {query.item_id!r}: "
            "its samples name the items it has",
        )
    differences = cell.certificate.differences if cell.certificate else ()
    return OutputPair(
        **where,
        is_lossless=cell.is_lossless,
        is_synthetic=cell.is_synthetic,
        method=method,
        origins=method.trace.origins(),
        baseline=baseline,
        difference=next((each for each in differences if each.item_id == query.item_id), None),
    )


@router.get("/calibrations", tags=["calibrations"], summary="List step-time calibrations")
def list_calibrations(
    store: StoreDependency, query: Annotated[CalibrationQuery, Query()]
) -> Page[CalibrationRecord]:
    """Return the calibrations that match every filter given, newest first."""
    filters = query.model_dump(exclude={"limit", "offset"})
    records = store.calibrations.list(**filters, limit=query.limit, offset=query.offset)
    return page_of(records, store.calibrations.count(**filters), query)
