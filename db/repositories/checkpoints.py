"""Draft checkpoints by the hash of their files."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, select, update

from db.engine import Database
from db.models import DraftCheckpointTable, TrainingTable
from db.repositories.common import (
    DEFAULT_LIMIT,
    MAX_ROW,
    count_rows,
    matching,
    read_page,
    require_run,
    to_record,
)
from db.training import CheckpointState, DraftCheckpoint
from specdec_core.config.training import DraftKind
from specdec_core.errors import StoreError

_ASSIGNED = {"id", "evaluation_key", "state", "reason", "exports"}
"""Fields that registering leaves alone: the store gives them, or later steps do."""


@dataclass(frozen=True, slots=True)
class CheckpointRepository:
    """Reads and writes draft checkpoints; the same files are one row whoever trained them."""

    database: Database

    def register(self, checkpoint: DraftCheckpoint) -> DraftCheckpoint:
        """Store `checkpoint` as a candidate, or return the stored one of the same files.

        Of a stored one only the folder changes, as files may have moved.

        Raises:
            StoreError: if its run or its training is not stored.
        """
        values = checkpoint.model_dump(exclude=_ASSIGNED) | {
            "evaluation_key": None,
            "evaluation": None,
            "state": "candidate",
            "reason": "",
            "exports": [],
        }
        insert = self.database.insert(DraftCheckpointTable).values(values)
        statement = insert.on_conflict_do_update(
            index_elements=["content_hash"], set_={"folder": insert.excluded["folder"]}
        ).returning(DraftCheckpointTable)
        training = select(TrainingTable.id).where(TrainingTable.key == checkpoint.training_key)
        with self.database.write() as connection:
            require_run(connection, checkpoint.run_id)
            if connection.execute(training).first() is None:
                raise StoreError(
                    f"training {checkpoint.training_key!r} is not stored: put it before its "
                    "checkpoint"
                )
            return to_record(DraftCheckpoint, connection.execute(statement).mappings().one())

    def judge(
        self,
        content_hash: str,
        *,
        state: CheckpointState,
        reason: str,
        evaluation_key: str,
        evaluation: Mapping[str, Any],
        realised_length: float | None,
        realised_acceptance: Sequence[float],
    ) -> DraftCheckpoint:
        """Store what the decode loop made of a checkpoint; a later evaluation replaces it.

        Args:
            content_hash: Which one.
            state: What follows from comparing realised with expected acceptance.
            reason: Why, one sentence.
            evaluation_key: Hash of what was asked.
            evaluation: The report, whole.
            realised_length: Accepted tokens per verify step, and the bonus token.
            realised_acceptance: Share accepted by draft depth, given the depth before.

        Raises:
            StoreError: if the checkpoint is not stored.
        """
        return self._change(
            content_hash,
            state=state,
            reason=reason,
            evaluation_key=evaluation_key,
            evaluation=dict(evaluation),
            realised_length=realised_length,
            realised_acceptance=list(realised_acceptance),
        )

    def note_exports(self, content_hash: str, folders: Sequence[str]) -> DraftCheckpoint:
        """Store the folders that a checkpoint was exported to, in place of earlier ones.

        Raises:
            StoreError: if the checkpoint is not stored.
        """
        return self._change(content_hash, exports=list(folders))

    def _change(self, content_hash: str, **values: Any) -> DraftCheckpoint:
        statement = (
            update(DraftCheckpointTable)
            .where(DraftCheckpointTable.content_hash == content_hash)
            .values(values)
            .returning(DraftCheckpointTable)
        )
        with self.database.write() as connection:
            row = connection.execute(statement).mappings().first()
            if row is None:
                raise StoreError(
                    f"checkpoint {content_hash!r} is not stored: register it before changing it"
                )
            return to_record(DraftCheckpoint, row)

    def get(self, checkpoint_id: int) -> DraftCheckpoint | None:
        """Return one checkpoint by id, or None."""
        if not 0 < checkpoint_id <= MAX_ROW:
            return None
        return self._one(DraftCheckpointTable.id == checkpoint_id)

    def find(self, content_hash: str) -> DraftCheckpoint | None:
        """Return the checkpoint with these files, or None."""
        return self._one(DraftCheckpointTable.content_hash == content_hash)

    def _one(self, condition: ColumnElement[bool]) -> DraftCheckpoint | None:
        with self.database.read() as connection:
            row = connection.execute(_rows(condition)).mappings().first()
            return None if row is None else to_record(DraftCheckpoint, row)

    def evaluation(self, content_hash: str) -> dict[str, Any] | None:
        """Return the report of its evaluation, None where there is none."""
        query = select(DraftCheckpointTable.evaluation).where(
            DraftCheckpointTable.content_hash == content_hash
        )
        with self.database.read() as connection:
            return connection.execute(query).scalar()

    def lineage(self, content_hash: str) -> builtins.list[DraftCheckpoint]:
        """Return the checkpoints that one was trained on from, nearest first."""
        found: list[DraftCheckpoint] = []
        one = self.find(content_hash)
        seen = {content_hash}
        while one is not None and one.parent_hash is not None and one.parent_hash not in seen:
            seen.add(one.parent_hash)
            one = self.find(one.parent_hash)
            if one is not None:
                found.append(one)
        return found

    def list(
        self,
        target: str | None = None,
        kind: DraftKind | None = None,
        loss: str | None = None,
        state: CheckpointState | None = None,
        run_id: str | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> builtins.list[DraftCheckpoint]:
        """Return checkpoints that match every filter given, newest first.

        `target` is a model reference or identity.
        """
        query = _rows(*_conditions(target, kind, loss, state, run_id))
        query = query.order_by(DraftCheckpointTable.id.desc())
        return read_page(self.database, DraftCheckpoint, query, limit, offset)

    def count(
        self,
        target: str | None = None,
        kind: DraftKind | None = None,
        loss: str | None = None,
        state: CheckpointState | None = None,
        run_id: str | None = None,
    ) -> int:
        """Return how many checkpoints match every filter given."""
        conditions = _conditions(target, kind, loss, state, run_id)
        return count_rows(self.database, DraftCheckpointTable, conditions)


def _rows(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Rows without their evaluation, which is long."""
    columns = [getattr(DraftCheckpointTable, name) for name in DraftCheckpoint.model_fields]
    return select(*columns).where(*conditions)


def _conditions(
    target: str | None,
    kind: str | None,
    loss: str | None,
    state: str | None,
    run_id: str | None,
) -> list[ColumnElement[bool]]:
    return matching(
        DraftCheckpointTable,
        target=target,
        draft_kind=kind,
        loss=loss,
        state=state,
        run_id=run_id,
    )
