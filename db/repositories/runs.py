"""Runs of flows, and which evaluations they used."""

from __future__ import annotations

import builtins
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from sqlalchemy import select, update

from db.clock import utc_now
from db.engine import Database
from db.models import FLOW_RUN_KEY, EvaluationTable, RunEvaluationTable, RunTable
from db.repositories.common import (
    DEFAULT_LIMIT,
    count_rows,
    matching,
    page,
    read_page,
    require_run,
    storable_message,
    to_record,
)
from db.schemas import EvaluationRow, RunEvaluation, RunRecord, RunStatus
from specdec_core.errors import StoreError


class RunChanges(TypedDict, total=False):
    """What may change in a run after it was created."""

    status: RunStatus
    summary: Mapping[str, Any]
    flow_run_id: str | None
    tracker_id: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class RunRepository:
    """Reads and writes runs."""

    database: Database

    def create(
        self,
        kind: str,
        name: str,
        config: Mapping[str, Any],
        provenance: Mapping[str, Any],
        flow_run_id: str | None = None,
    ) -> RunRecord:
        """Store a new run as running and return it.

        A flow run that is retried by its orchestrator comes with the same `flow_run_id`, kind and
        name: it continues its run, which is set to running again, its error forgotten.
        """
        now = utc_now()
        insert = self.database.insert(RunTable).values(
            id=uuid.uuid4().hex,
            kind=kind,
            name=name,
            status="running",
            config=dict(config),
            provenance=dict(provenance),
            summary={},
            flow_run_id=flow_run_id,
            created_at=now,
            updated_at=now,
        )
        statement = insert.on_conflict_do_update(
            index_elements=list(FLOW_RUN_KEY),
            set_={"status": "running", "error": None, "updated_at": insert.excluded.updated_at},
        ).returning(RunTable)
        with self.database.write() as connection:
            return to_record(RunRecord, connection.execute(statement).mappings().one())

    def update(self, run_id: str, **changes: Unpack[RunChanges]) -> RunRecord:
        """Change fields of a run in one statement and return it.

        Raises:
            StoreError: if the run is not stored.
            TypeError: for a field that cannot change.
        """
        unknown = sorted(set(changes) - set(RunChanges.__annotations__))
        if unknown:
            raise TypeError(
                f"run fields {unknown} cannot change: choose among "
                f"{sorted(RunChanges.__annotations__)}"
            )
        values: dict[str, Any] = {**changes, "updated_at": utc_now()}
        if "summary" in changes:
            values["summary"] = dict(changes["summary"])
        if changes.get("error") is not None:
            values["error"] = storable_message(str(changes["error"]))
        statement = update(RunTable).where(RunTable.id == run_id).values(values).returning(RunTable)
        with self.database.write() as connection:
            row = connection.execute(statement).mappings().first()
            if row is None:
                raise StoreError(f"run {run_id!r} is not stored: create it before changing it")
            return to_record(RunRecord, row)

    def get(self, run_id: str) -> RunRecord | None:
        """Return the run, or None."""
        with self.database.read() as connection:
            query = select(RunTable).where(RunTable.id == run_id)
            row = connection.execute(query).mappings().first()
            return None if row is None else to_record(RunRecord, row)

    def list(
        self,
        kind: str | None = None,
        status: RunStatus | None = None,
        flow_run_id: str | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> builtins.list[RunRecord]:
        """Return the runs that match every filter given, newest first."""
        query = (
            select(RunTable)
            .where(*matching(RunTable, kind=kind, status=status, flow_run_id=flow_run_id))
            .order_by(RunTable.created_at.desc(), RunTable.id)
        )
        return read_page(self.database, RunRecord, query, limit, offset)

    def ids_of(
        self, kind: str, name: str, config: Mapping[str, Any], status: RunStatus
    ) -> builtins.list[str]:
        """Return the ids of the runs of just this configuration, newest first.

        Cheap among many runs: of those of another name nothing is read, and of the others no
        summary, which is long.
        """
        conditions = matching(RunTable, kind=kind, name=name, status=status)
        query = select(RunTable.id, RunTable.config).where(*conditions)
        query = query.order_by(RunTable.created_at.desc(), RunTable.id)
        with self.database.read() as connection:
            return [row.id for row in connection.execute(query) if row.config == config]

    def count(self, kind: str | None = None, status: RunStatus | None = None) -> int:
        """Return how many runs match."""
        return count_rows(self.database, RunTable, matching(RunTable, kind=kind, status=status))

    def link(self, run_id: str, key: str, role: str, level: int | None = None) -> None:
        """Note that a run used an evaluation in a role; a second time changes nothing.

        Raises:
            StoreError: if the run or the evaluation is not stored.
        """
        query = select(EvaluationTable.id).where(EvaluationTable.key == key)
        with self.database.write() as connection:
            require_run(connection, run_id)
            evaluation_id = connection.execute(query).scalar()
            if evaluation_id is None:
                raise StoreError(f"evaluation {key!r} is not stored: put it before linking it")
            connection.execute(
                self.database.insert(RunEvaluationTable)
                .values(run_id=run_id, evaluation_id=evaluation_id, role=role, level=level)
                .on_conflict_do_nothing()
            )

    def evaluations(
        self, run_id: str, limit: int | None = None, offset: int = 0
    ) -> builtins.list[RunEvaluation]:
        """Return the evaluations that a run used, in the order in which they were linked."""
        query = (
            select(RunEvaluationTable.role, RunEvaluationTable.level, EvaluationTable)
            .join(EvaluationTable, EvaluationTable.id == RunEvaluationTable.evaluation_id)
            .where(RunEvaluationTable.run_id == run_id)
            .order_by(RunEvaluationTable.id)
        )
        with self.database.read() as connection:
            rows = connection.execute(page(query, limit, offset)).mappings()
            return [
                RunEvaluation(row["role"], row["level"], to_record(EvaluationRow, row))
                for row in rows
            ]

    def count_evaluations(self, run_id: str) -> int:
        """Return how many evaluations a run used."""
        return count_rows(self.database, RunEvaluationTable, [RunEvaluationTable.run_id == run_id])

    def suite_hashes(self, run_id: str) -> builtins.list[str]:
        """Return the content hashes of the suites that a run's evaluations used, sorted."""
        query = (
            select(EvaluationTable.suite_hash)
            .join(RunEvaluationTable, RunEvaluationTable.evaluation_id == EvaluationTable.id)
            .where(RunEvaluationTable.run_id == run_id)
            .distinct()
        )
        with self.database.read() as connection:
            return sorted(connection.execute(query).scalars())
