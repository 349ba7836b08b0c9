"""Cells of benchmark runs."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import select

from db.cells import BenchmarkCell, CellSample
from db.engine import Database
from db.models import CELL_KEY, BenchmarkCellTable
from db.repositories.common import (
    count_rows,
    matching,
    page,
    require_run,
    to_record,
)

logger = logging.getLogger(__name__)

_SAMPLES: TypeAdapter[tuple[CellSample, ...]] = TypeAdapter(tuple[CellSample, ...])


@dataclass(frozen=True, slots=True)
class BenchmarkRepository:
    """Reads and writes benchmark cells; a done one is never changed."""

    database: Database

    def put(self, cell: BenchmarkCell) -> bool:
        """Store `cell`; a failed cell of the same key is replaced.

        The key is run, target identity, dtype, domain, drafter and skip.

        Returns:
            True if it was stored, False if the cell was done already and nothing changed.

        Raises:
            StoreError: if its run is not stored.
        """
        documents = {"figures", "certificate"}
        values = cell.model_dump(exclude={*documents, "samples"})
        values |= cell.model_dump(mode="json", include=documents)
        values["samples"] = _SAMPLES.dump_json(cell.samples).decode()
        insert = self.database.insert(BenchmarkCellTable).values(values)
        statement = insert.on_conflict_do_update(
            index_elements=list(CELL_KEY),
            set_={name: insert.excluded[name] for name in values if name not in CELL_KEY},
            where=BenchmarkCellTable.status != "done",
        ).returning(BenchmarkCellTable.id)
        with self.database.write() as connection:
            require_run(connection, cell.run_id)
            is_written = connection.execute(statement).first() is not None
        if not is_written:
            logger.info(
                "cell %s, %s of run %s is stored already", cell.domain, cell.drafter, cell.run_id
            )
        return is_written

    def list(
        self,
        run_id: str | None = None,
        domain: str | None = None,
        drafter: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> builtins.list[BenchmarkCell]:
        """Return cells that match every filter given, in the order in which they were stored."""
        conditions = matching(BenchmarkCellTable, run_id=run_id, domain=domain, drafter=drafter)
        query = select(BenchmarkCellTable).where(*conditions).order_by(BenchmarkCellTable.id)
        with self.database.read() as connection:
            rows = connection.execute(page(query, limit, offset)).mappings()
            return [_to_cell(row) for row in rows]

    def count(
        self, run_id: str | None = None, domain: str | None = None, drafter: str | None = None
    ) -> int:
        """Return how many cells match every filter given."""
        conditions = matching(BenchmarkCellTable, run_id=run_id, domain=domain, drafter=drafter)
        return count_rows(self.database, BenchmarkCellTable, conditions)


def _to_cell(row: Mapping[Any, Any]) -> BenchmarkCell:
    return to_record(BenchmarkCell, {**row, "samples": _SAMPLES.validate_json(row["samples"])})
