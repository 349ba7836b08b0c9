"""Runs with their provenance, and the evaluations they used."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from db.api.common import Page, Paging, StoreDependency, page_of, problems
from db.api.problems import not_found
from db.schemas import EvaluationRow, RunRecord, RunStatus
from specdec_core.config.base import Record

router = APIRouter(prefix="/runs", tags=["runs"])


class RunQuery(Paging):
    """Filters of the run list."""

    kind: str | None = Field(None, min_length=1, description="flow, such as 'tss-search'")
    status: RunStatus | None = None


class RunDetail(RunRecord):
    """A run with what its numbers can be traced back to."""

    suite_hashes: list[str] = Field(description="content hashes of the data it was measured on")
    num_evaluations: int = Field(description="evaluations it used")


class LinkedEvaluation(Record):
    """An evaluation as one run used it."""

    role: str
    level: int | None = Field(description="search level, where it has one")
    evaluation: EvaluationRow


@router.get("", summary="List runs, newest first")
def list_runs(store: StoreDependency, query: Annotated[RunQuery, Query()]) -> Page[RunRecord]:
    """Return the runs that match every filter given."""
    filters = query.model_dump(exclude={"limit", "offset"})
    runs = store.runs.list(**filters, limit=query.limit, offset=query.offset)
    return page_of(runs, store.runs.count(**filters), query)


@router.get(
    "/{run_id}",
    summary="One run with its provenance",
    responses=problems(HTTPStatus.NOT_FOUND),
)
def get_run(store: StoreDependency, run_id: str) -> RunDetail:
    """Return one run: configuration, commit, environment, command and data hashes."""
    run = _require(store, run_id)
    return RunDetail(
        **dict(run),
        suite_hashes=store.runs.suite_hashes(run_id),
        num_evaluations=store.runs.count_evaluations(run_id),
    )


@router.get(
    "/{run_id}/evaluations",
    summary="The evaluations that a run used, in order",
    responses=problems(HTTPStatus.NOT_FOUND),
)
def run_evaluations(
    store: StoreDependency, run_id: str, paging: Annotated[Paging, Query()]
) -> Page[LinkedEvaluation]:
    """Return the evaluations linked to one run."""
    _require(store, run_id)
    linked = [
        LinkedEvaluation(role=role, level=level, evaluation=row)
        for role, level, row in store.runs.evaluations(run_id, paging.limit, paging.offset)
    ]
    return page_of(linked, store.runs.count_evaluations(run_id), paging)


def _require(store: StoreDependency, run_id: str) -> RunRecord:
    run = store.runs.get(run_id)
    if run is None:
        raise not_found("run", run_id)
    return run
