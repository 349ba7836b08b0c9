"""Draft checkpoints: what was trained, and what it is worth in the decode loop."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, field_validator

from db.api.common import (
    Page,
    Paging,
    StoreDependency,
    Tagged,
    page_of,
    problems,
    tagged_response,
)
from db.api.problems import not_found
from db.training import CheckpointState, DraftCheckpoint, TrainingPoint
from specdec_core.config.losses import canonical_losses
from specdec_core.config.training import DraftKind

router = APIRouter(prefix="/checkpoints", tags=["checkpoints"])
CheckpointId = Annotated[int, Path(ge=1, le=2**31 - 1, description="id of one checkpoint")]
_NOT_MODIFIED: dict[int | str, dict[str, object]] = {
    304: {"description": "The version named in If-None-Match is still the answer"}
}


class CheckpointQuery(Paging):
    """Filters of the checkpoint list."""

    target: str | None = Field(None, min_length=1, description="model reference or identity")
    kind: DraftKind | None = Field(None, description="what the draft is made of")
    loss: str | None = Field(
        None, description="as training takes it, such as kl+0.1eal; phases are joined by /"
    )
    state: CheckpointState | None = None
    run_id: str | None = Field(None, min_length=1, description="the run that trained it")

    @field_validator("loss")
    @classmethod
    def _canonical_loss(cls, text: str | None) -> str | None:
        return None if text is None else canonical_losses(text)


class CheckpointDetail(DraftCheckpoint):
    """A checkpoint with its training and evaluation."""

    config: dict[str, Any] = Field(description="resolved parameters of its training, whole")
    curve: tuple[TrainingPoint, ...] = Field(description="of its training, oldest first")
    evaluation: dict[str, Any] | None = Field(
        description="expected and realised acceptance, whole; null before it was evaluated"
    )
    lineage: list[str] = Field(
        description="content hashes of the checkpoints it was trained on from, nearest first"
    )


@router.get(
    "",
    summary="List draft checkpoints, newest first",
    response_model=Page[DraftCheckpoint],
    responses=_NOT_MODIFIED,
)
def list_checkpoints(
    request: Request, store: StoreDependency, query: Annotated[CheckpointQuery, Query()]
) -> Response:
    """Return the checkpoints that match every filter given, with an entity tag of the page."""
    filters = query.model_dump(exclude={"limit", "offset"})
    found = store.checkpoints.list(**filters, limit=query.limit, offset=query.offset)
    answer = page_of(found, store.checkpoints.count(**filters), query)
    return tagged_response(request, Tagged.of(answer))


@router.get(
    "/{checkpoint_id}",
    summary="One draft checkpoint with training curve, evaluation and lineage",
    response_model=CheckpointDetail,
    responses=problems(HTTPStatus.NOT_FOUND) | _NOT_MODIFIED,
)
def get_checkpoint(
    request: Request, store: StoreDependency, checkpoint_id: CheckpointId
) -> Response:
    """Return one checkpoint by id."""
    found = store.checkpoints.get(checkpoint_id)
    if found is None:
        raise not_found("checkpoint", checkpoint_id)
    training = store.trainings.get(found.training_key)
    detail = CheckpointDetail(
        **dict(found),
        config=training.config if training else {},
        curve=training.curve if training else (),
        evaluation=store.checkpoints.evaluation(found.content_hash),
        lineage=[each.content_hash for each in store.checkpoints.lineage(found.content_hash)],
    )
    return tagged_response(request, Tagged.of(detail))
