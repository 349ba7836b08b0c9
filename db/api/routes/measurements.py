"""Benchmark cells and calibrations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from db.api.common import Page, Paging, StoreDependency, page_of
from db.schemas import BenchmarkCell, CalibrationRecord

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


@router.get("/calibrations", tags=["calibrations"], summary="List step-time calibrations")
def list_calibrations(
    store: StoreDependency, query: Annotated[CalibrationQuery, Query()]
) -> Page[CalibrationRecord]:
    """Return the calibrations that match every filter given, newest first."""
    filters = query.model_dump(exclude={"limit", "offset"})
    records = store.calibrations.list(**filters, limit=query.limit, offset=query.offset)
    return page_of(records, store.calibrations.count(**filters), query)
