"""Draft training from the store: checkpoints, one training, and what came of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, ValidationError

from dashboards.links import Link, Services, service_links
from dashboards.queries import LOSS_KIND, Question
from db.api.problems import not_found
from db.schemas import Interval, RunRecord
from db.store import Store
from db.training import DraftCheckpoint, TrainingRecord

logger = logging.getLogger(__name__)

MAX_CHECKPOINTS = 200
NUM_COMPARISONS = 5


class _Lenient(BaseModel):
    """Reads of a stored document what it knows, so that later fields do not hide it."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class DepthRow(_Lenient):
    """Acceptance of one depth in one cell."""

    depth: int
    num_trials: int
    expected: float
    realised: float
    is_checked: bool
    is_agreed: bool


class CellFigures(_Lenient):
    """What a cell's own speed is."""

    tokens_per_s: float
    speedup: Interval | None = None


class EvaluatedCell(_Lenient):
    """One domain, shape and temperature of the evaluation."""

    domain: str
    shape: str
    temperature: float
    error: str | None = None
    accepted_per_step: float | None = None
    figures: CellFigures | None = None
    depths: tuple[DepthRow, ...] = ()


class Evaluation(_Lenient):
    """The evaluation of a checkpoint as the page shows it."""

    cells: tuple[EvaluatedCell, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingPage:
    """Stored checkpoints, and one training with what came of it."""

    checkpoints: tuple[DraftCheckpoint, ...]
    running: tuple[TrainingRecord, ...]
    comparisons: tuple[RunRecord, ...]
    training: TrainingRecord | None = None
    checkpoint: DraftCheckpoint | None = None
    evaluation: Evaluation | None = None
    lineage: tuple[DraftCheckpoint, ...] = ()
    run: RunRecord | None = None


def load_training(store: Store, question: Question) -> TrainingPage:
    """Return what the page shows: the checkpoint or run asked for, else the newest checkpoint.

    Raises:
        ProblemError: 404 if what was asked for is not stored.
        StoreError: if the database cannot be read.
    """
    checkpoints = store.checkpoints.list(limit=MAX_CHECKPOINTS)
    checkpoint, training = _asked(store, question, checkpoints)
    found = checkpoint.run_id if checkpoint else training.run_id if training else None
    return TrainingPage(
        checkpoints=tuple(checkpoints),
        running=tuple(store.trainings.list(status="running")),
        comparisons=tuple(store.runs.list(kind=LOSS_KIND, limit=NUM_COMPARISONS)),
        training=training,
        checkpoint=checkpoint,
        evaluation=_evaluation(store, checkpoint) if checkpoint else None,
        lineage=tuple(store.checkpoints.lineage(checkpoint.content_hash)) if checkpoint else (),
        run=store.runs.get(found) if found is not None else None,
    )


def _asked(
    store: Store, question: Question, checkpoints: Sequence[DraftCheckpoint]
) -> tuple[DraftCheckpoint | None, TrainingRecord | None]:
    if question.checkpoint is not None:
        one = store.checkpoints.get(question.checkpoint)
        if one is None:
            raise not_found("checkpoint", question.checkpoint)
    elif question.run is not None:
        run = store.runs.get(question.run)
        if run is None:
            raise not_found("run", question.run)
        # A run that found its training done names the checkpoint of the run that did it.
        stored = (run.summary.get("checkpoint") or {}).get("content_hash")
        one = store.checkpoints.find(stored) if isinstance(stored, str) else None
        if one is None:
            return None, next(iter(store.trainings.list(run_id=run.id, limit=1)), None)
    else:
        one = next(iter(checkpoints), None)
    return one, store.trainings.get(one.training_key) if one else None


def _evaluation(store: Store, checkpoint: DraftCheckpoint) -> Evaluation | None:
    stored = store.checkpoints.evaluation(checkpoint.content_hash)
    try:
        return Evaluation.model_validate(stored) if stored is not None else None
    except ValidationError as error:
        logger.warning("evaluation of checkpoint %s cannot be shown: %s", checkpoint.id, error)
        return None


def training_links(page: TrainingPage, services: Services) -> tuple[Link, ...]:
    """Return where the selected training is found elsewhere."""
    found = []
    if page.checkpoint is not None:
        found.append(Link("REST: this checkpoint", f"/api/v1/checkpoints/{page.checkpoint.id}"))
    run = page.run
    if run is not None:
        found.append(Link("REST: this run", f"/api/v1/runs/{quote(run.id, safe='')}"))
        found += service_links(services, run)
    return tuple(found)


def training_page_url(checkpoint: DraftCheckpoint) -> str:
    """Return the shareable address of the page with this checkpoint selected."""
    return f"/training?{urlencode({'checkpoint': checkpoint.id})}"


def training_csv(name: str, page: TrainingPage) -> str:
    """Return the address of a table's CSV."""
    if name == "checkpoints" or page.checkpoint is None:
        return f"/dashboards/{name}.csv"
    return f"/dashboards/{name}.csv?{urlencode({'checkpoint': page.checkpoint.id})}"
