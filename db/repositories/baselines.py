"""Named baselines: which benchmark run others are compared with, and since when."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, select

from db.engine import Database
from db.models import BaselineTable
from db.repositories.common import require_run, to_record
from db.schemas import Baseline


@dataclass(frozen=True, slots=True)
class BaselineRepository:
    """Reads and writes baselines; former ones are kept as a record of the change."""

    database: Database

    def set(self, baseline: Baseline) -> Baseline:
        """Point the name to a run; where it points there already, nothing changes.

        Raises:
            StoreError: if the run is not stored.
        """
        with self.database.write() as connection:
            self.database.lock(connection, f"baseline {baseline.name}")
            require_run(connection, baseline.run_id)
            row = connection.execute(_newest_first(baseline.name)).mappings().first()
            if row is not None and row["run_id"] == baseline.run_id:
                return to_record(Baseline, row)
            statement = self.database.insert(BaselineTable).values(baseline.model_dump())
            stored = connection.execute(statement.returning(BaselineTable)).mappings().one()
            return to_record(Baseline, stored)

    def get(self, name: str) -> Baseline | None:
        """Return what the name points to, or None."""
        with self.database.read() as connection:
            row = connection.execute(_newest_first(name)).mappings().first()
            return None if row is None else to_record(Baseline, row)

    def history(self, name: str) -> builtins.list[Baseline]:
        """Return everything the name has pointed to, newest first."""
        with self.database.read() as connection:
            rows = connection.execute(_newest_first(name)).mappings()
            return [to_record(Baseline, row) for row in rows]


def _newest_first(name: str) -> Select[Any]:
    return select(BaselineTable).where(BaselineTable.name == name).order_by(BaselineTable.id.desc())
