"""Trainings of drafts by content key."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select

from db.engine import Database
from db.models import RunTable, TrainingTable
from db.repositories.common import (
    DEFAULT_LIMIT,
    matching,
    read_page,
    require_run,
    to_record,
)
from db.training import TrainingRecord, TrainingStatus
from specdec_core.config.training import DraftKind


@dataclass(frozen=True, slots=True)
class TrainingRepository:
    """Reads and writes trainings; a done one is changed only where it is done again."""

    database: Database

    def put(self, training: TrainingRecord, *, is_again: bool = False) -> bool:
        """Store `training`; one of the same key that is not done is replaced, its start kept.

        Args:
            training: The training.
            is_again: Whether a done one is replaced too, as where its files are gone.

        Returns:
            True if it was stored, False if it was done already and nothing changed.

        Raises:
            StoreError: if its run is not stored.
        """
        values = training.model_dump(exclude={"curve"})
        values["status"] = "done" if training.status == "done" else "running"
        values["curve"] = [point.model_dump(mode="json") for point in training.curve]
        insert = self.database.insert(TrainingTable).values(values)
        changed = values.keys() - {"key", "created_at"}
        statement = insert.on_conflict_do_update(
            index_elements=["key"],
            set_={name: insert.excluded[name] for name in changed},
            where=None if is_again else TrainingTable.status != "done",
        ).returning(TrainingTable.id)
        with self.database.write() as connection:
            require_run(connection, training.run_id)
            return connection.execute(statement).first() is not None

    def get(self, key: str) -> TrainingRecord | None:
        """Return the training with this content key, or None."""
        query = _rows(TrainingTable.key == key)
        with self.database.read() as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else to_record(TrainingRecord, row)

    def list(
        self,
        target: str | None = None,
        kind: DraftKind | None = None,
        loss: str | None = None,
        status: TrainingStatus | None = None,
        run_id: str | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> builtins.list[TrainingRecord]:
        """Return trainings that match every filter given, newest first.

        `target` is a model reference or identity.
        """
        conditions = matching(
            TrainingTable, target=target, draft_kind=kind, loss=loss, run_id=run_id
        )
        query = _rows(*conditions, *_of_status(status)).order_by(TrainingTable.id.desc())
        return read_page(self.database, TrainingRecord, query, limit, offset)

    def count(self, status: TrainingStatus | None = None) -> int:
        """Return how many trainings are stored."""
        found = _rows(*_of_status(status)).subquery()
        with self.database.read() as connection:
            return connection.execute(select(func.count()).select_from(found)).scalar_one()


_STATUS = case(
    (TrainingTable.status == "done", "done"),
    (RunTable.status == "completed", "failed"),  # ended without it
    else_=RunTable.status,
)
"""A training that is not done goes on only while its run does."""


def _rows(*conditions: ColumnElement[bool]) -> Select[Any]:
    names = TrainingRecord.model_fields.keys() - {"status"}
    columns = [getattr(TrainingTable, name) for name in sorted(names)]
    runs = TrainingTable.run_id == RunTable.id
    query = select(*columns, _STATUS.label("status")).select_from(TrainingTable)
    return query.join(RunTable, runs).where(*conditions)


def _of_status(status: TrainingStatus | None) -> tuple[ColumnElement[bool], ...]:
    return () if status is None else (_STATUS.in_([status]),)
