"""Measured step-time curves and layer statistics."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select

from db.engine import Database
from db.models import CALIBRATION_KEY, CalibrationTable
from db.repositories.common import (
    DEFAULT_LIMIT,
    count_rows,
    matching,
    read_page,
    require_run,
    to_record,
)
from db.schemas import CalibrationRecord


@dataclass(frozen=True, slots=True)
class CalibrationRepository:
    """Reads and writes calibrations; the latest of a target, hardware and shape counts."""

    database: Database

    def put(self, calibration: CalibrationRecord) -> CalibrationRecord:
        """Store `calibration` in place of an earlier one of the same key.

        The key is target identity, dtype, hardware, skip and context length.

        Raises:
            StoreError: if its run is not stored.
        """
        values = calibration.model_dump(exclude={"curve", "layers"})
        values["curve"] = [point.model_dump(mode="json") for point in calibration.curve]
        values["layers"] = [layer.model_dump(mode="json") for layer in calibration.layers]
        insert = self.database.insert(CalibrationTable).values(values)
        statement = insert.on_conflict_do_update(
            index_elements=list(CALIBRATION_KEY),
            set_={name: insert.excluded[name] for name in values if name not in CALIBRATION_KEY},
        ).returning(CalibrationTable)
        with self.database.write() as connection:
            if calibration.run_id is not None:
                require_run(connection, calibration.run_id)
            return to_record(CalibrationRecord, connection.execute(statement).mappings().one())

    def list(
        self,
        target: str | None = None,
        hardware: str | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> builtins.list[CalibrationRecord]:
        """Return calibrations, newest first; `target` is a model reference or identity."""
        query = _newest_first().where(*matching(CalibrationTable, target=target, hardware=hardware))
        return read_page(self.database, CalibrationRecord, query, limit, offset)

    def count(self, target: str | None = None, hardware: str | None = None) -> int:
        """Return how many calibrations match."""
        conditions = matching(CalibrationTable, target=target, hardware=hardware)
        return count_rows(self.database, CalibrationTable, conditions)


def _newest_first() -> Select[Any]:
    return select(CalibrationTable).order_by(
        CalibrationTable.created_at.desc(), CalibrationTable.id.desc()
    )
