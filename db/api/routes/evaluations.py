"""Evaluations by content key, down to the token ids of every sample."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from db.api.common import Page, Paging, StoreDependency, page_of, problems
from db.api.problems import ProblemError
from db.schemas import EvaluationRow
from specdec_core.records import SampleResult

router = APIRouter(prefix="/evaluations", tags=["evaluations"])


class EvaluationDetail(EvaluationRow):
    """An evaluation and the runs that used it."""

    run_ids: list[str] = Field(description="runs that used it, oldest first")


@router.get(
    "/{key}", summary="One evaluation, without samples", responses=problems(HTTPStatus.NOT_FOUND)
)
def get_evaluation(store: StoreDependency, key: str) -> EvaluationDetail:
    """Return what was asked and found under one content key."""
    row = _require(store, key)
    return EvaluationDetail(**dict(row), run_ids=store.evaluations.run_ids(key))


@router.get(
    "/{key}/samples",
    summary="The samples of one evaluation, with token ids",
    responses=problems(HTTPStatus.NOT_FOUND),
)
def evaluation_samples(
    store: StoreDependency, key: str, paging: Annotated[Paging, Query()]
) -> Page[SampleResult]:
    """Return generated token ids, text, score and step trace of every item."""
    row = _require(store, key)
    samples = store.evaluations.samples(key, paging.limit, paging.offset)
    total = 0 if row.summary is None else row.summary.num_samples
    return page_of([*samples], total, paging)


def _require(store: StoreDependency, key: str) -> EvaluationRow:
    row = store.evaluations.row(key)
    if row is None:
        raise ProblemError(
            HTTPStatus.NOT_FOUND,
            "evaluation-not-found",
            f"evaluation {key!r} is not stored: list a run's with GET /api/v1/runs/ID/evaluations",
        )
    return row
