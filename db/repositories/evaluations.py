"""Evaluations by content key, and their samples."""

from __future__ import annotations

import builtins
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, insert, select

from db.clock import utc_now
from db.engine import Database
from db.models import EvaluationTable, RunEvaluationTable, RunTable, SampleTable
from db.repositories.common import (
    DEFAULT_LIMIT,
    count_rows,
    matching,
    page,
    read_page,
    storable_message,
    to_record,
)
from db.schemas import EvaluationRow, ResultStatus
from specdec_core.config.drafters import format_drafter
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import StoreError
from specdec_core.records import (
    EvaluationResult,
    EvaluationSummary,
    PhaseSeconds,
    SampleResult,
    StepTrace,
)

logger = logging.getLogger(__name__)

_RESULT_COLUMNS = (
    "status",
    "error_type",
    "error",
    "summary",
    "phases",
    "wall_s",
    "peak_memory_bytes",
    "hardware",
    "created_at",
)


@dataclass(frozen=True, slots=True)
class EvaluationRepository:
    """Reads and writes evaluations; a done one is never changed."""

    database: Database

    def put(self, request: EvaluationRequest, result: EvaluationResult) -> bool:
        """Store a result with all its samples in one transaction.

        Returns:
            True if it was stored, False if the key was done already and nothing changed.

        Raises:
            StoreError: if `result` does not answer `request`, item by item, has scores,
                seconds or gaps that are not finite, or the database fails; nothing is stored then.
        """
        _check(request, result)
        values = _request_columns(request) | {
            "status": "done",
            "summary": result.summary.model_dump(mode="json"),
            "phases": result.phases.model_dump(mode="json"),
            "wall_s": result.wall_s,
            "peak_memory_bytes": result.peak_memory_bytes,
            "hardware": result.hardware,
        }
        with self.database.write() as connection:
            row = self._upsert(connection, values)
            if row is None:
                logger.info("evaluation %s is stored already, nothing written", request.key)
                return False
            connection.execute(insert(SampleTable), _sample_columns(row[0], result.samples))
        return True

    def fail(self, request: EvaluationRequest, error_type: str, message: str) -> int:
        """Note a failed try; a done evaluation stays as it is.

        Returns:
            Tries recorded so far for this key.
        """
        values = _request_columns(request) | {
            "status": "failed",
            "error_type": error_type,
            "error": storable_message(message),
        }
        with self.database.write() as connection:
            row = self._upsert(connection, values)
            if row is not None:
                return int(row[1])
            logger.info("evaluation %s is done already, failure not noted", request.key)
            query = select(EvaluationTable.attempts).where(EvaluationTable.key == request.key)
            return connection.execute(query).scalar_one()

    def _upsert(self, connection: Connection, values: dict[str, Any]) -> Any:
        """Write one row; return its id and attempts, or None where the key is done."""
        statement = self.database.insert(EvaluationTable).values(attempts=1, **values)
        changes: dict[str, Any] = {name: statement.excluded[name] for name in _RESULT_COLUMNS}
        changes["attempts"] = EvaluationTable.attempts + 1
        return connection.execute(
            statement.on_conflict_do_update(
                index_elements=["key"], set_=changes, where=EvaluationTable.status != "done"
            ).returning(EvaluationTable.id, EvaluationTable.attempts)
        ).first()

    def row(self, key: str) -> EvaluationRow | None:
        """Return what is stored under `key`, done or failed, without samples."""
        with self.database.read() as connection:
            row = connection.execute(_by_key(key)).mappings().first()
            return None if row is None else to_record(EvaluationRow, row)

    def get(self, key: str) -> EvaluationResult | None:
        """Return the result under `key` with its samples, or None where none is done."""
        with self.database.read() as connection:
            row = connection.execute(_by_key(key)).mappings().first()
            if row is None or row["status"] != "done":
                return None
            return EvaluationResult(
                key=key,
                summary=EvaluationSummary.model_validate(row["summary"]),
                samples=_read_samples(connection, _samples_of(key)),
                phases=PhaseSeconds.model_validate(row["phases"]),
                wall_s=row["wall_s"],
                peak_memory_bytes=row["peak_memory_bytes"],
                hardware=row["hardware"],
            )

    def summary(self, key: str) -> EvaluationSummary | None:
        """Return the pooled figures under `key`, or None where none is done; reads no samples."""
        query = select(EvaluationTable.summary).where(EvaluationTable.key == key)
        with self.database.read() as connection:
            stored = connection.execute(query).scalar()
            return None if stored is None else EvaluationSummary.model_validate(stored)

    def samples(
        self, key: str, limit: int | None = None, offset: int = 0
    ) -> tuple[SampleResult, ...]:
        """Return the samples under `key` in their order, none where no evaluation is done."""
        with self.database.read() as connection:
            return _read_samples(connection, page(_samples_of(key), limit, offset))

    def sample(self, key: str, item_id: str) -> SampleResult | None:
        """Return the sample of one item under `key`, or None where there is none."""
        query = _samples_of(key).where(SampleTable.item_id == item_id)
        with self.database.read() as connection:
            return next(iter(_read_samples(connection, query)), None)

    def list(
        self,
        *,
        target_identity: str | None = None,
        domain: str | None = None,
        drafter: str | None = None,
        skip: str | None = None,
        suite_hash: str | None = None,
        status: ResultStatus | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> builtins.list[EvaluationRow]:
        """Return evaluations that match every filter given, newest first."""
        conditions = matching(
            EvaluationTable,
            target_identity=target_identity,
            domain=domain,
            drafter=drafter,
            skip=skip,
            suite_hash=suite_hash,
            status=status,
        )
        query = select(EvaluationTable).where(*conditions).order_by(EvaluationTable.id.desc())
        return read_page(self.database, EvaluationRow, query, limit, offset)

    def count(self, status: ResultStatus | None = None) -> int:
        """Return how many evaluations are stored."""
        return count_rows(self.database, EvaluationTable, matching(EvaluationTable, status=status))

    def run_ids(self, key: str) -> builtins.list[str]:
        """Return the runs that used the evaluation, oldest first."""
        query = (
            select(RunTable.id)
            .join(RunEvaluationTable, RunEvaluationTable.run_id == RunTable.id)
            .join(EvaluationTable, EvaluationTable.id == RunEvaluationTable.evaluation_id)
            .where(EvaluationTable.key == key)
            .group_by(RunTable.id, RunTable.created_at)
            .order_by(RunTable.created_at, RunTable.id)
        )
        with self.database.read() as connection:
            return [*connection.execute(query).scalars()]


def _by_key(key: str) -> Select[Any]:
    return select(EvaluationTable).where(EvaluationTable.key == key)


def _samples_of(key: str) -> Select[Any]:
    return (
        select(SampleTable)
        .join(EvaluationTable, EvaluationTable.id == SampleTable.evaluation_id)
        .where(EvaluationTable.key == key)
        .order_by(SampleTable.position)
    )


def _read_samples(connection: Connection, query: Select[Any]) -> tuple[SampleResult, ...]:
    rows = connection.execute(query).mappings()
    return tuple(
        to_record(
            SampleResult,
            {
                **row,
                "trace": StepTrace.model_validate_json(row["trace"]),
                "token_ends": row["token_ends"] or (),
            },
        )
        for row in rows
    )


def _request_columns(request: EvaluationRequest) -> dict[str, Any]:
    return {
        "key": request.key,
        "target_identity": request.target_identity,
        "domain": request.domain,
        "drafter": format_drafter(request.drafter),
        "skip": request.skip,
        "suite_hash": request.suite_hash,
        "request": request.model_dump(mode="json"),
        "error_type": None,
        "error": None,
        "summary": None,
        "phases": None,
        "wall_s": None,
        "peak_memory_bytes": None,
        "hardware": "",
        "created_at": utc_now(),
    }


def _sample_columns(evaluation_id: int, samples: Sequence[SampleResult]) -> list[dict[str, Any]]:
    return [
        {
            "evaluation_id": evaluation_id,
            "position": position,
            **sample.model_dump(exclude={"trace"}),
            "trace": sample.trace.model_dump_json(),
        }
        for position, sample in enumerate(samples)
    ]


def _check(request: EvaluationRequest, result: EvaluationResult) -> None:
    if result.key != request.key:
        raise StoreError(
            f"result {result.key!r} does not answer request {request.key!r}: store each result "
            "under the request it was computed for"
        )
    items = [sample.item_id for sample in result.samples]
    if sorted(items) != sorted(request.item_ids):
        raise StoreError(
            f"evaluation {request.key!r} asks for {len(request.item_ids)} items and the result "
            f"has {len(items)} samples that are not the same items: store whole results only"
        )
    for sample in result.samples:
        numbers = (
            *(sample.score, sample.raw_score, sample.seconds),
            *sample.gaps,
            *sample.step_seconds,
        )
        if not all(math.isfinite(number) for number in numbers if number is not None):
            raise StoreError(
                f"item {sample.item_id!r} of evaluation {request.key!r} has a score, seconds or "
                "logit gaps that are not finite: record the evaluation as failed instead"
            )
