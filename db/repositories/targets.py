"""Target models known to the store."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from db.clock import utc_now
from db.engine import Database
from db.models import TargetTable
from db.repositories.common import to_record
from db.schemas import TargetRecord


@dataclass(frozen=True, slots=True)
class TargetRepository:
    """Reads and writes targets by content hash."""

    database: Database

    def put(self, target: TargetRecord) -> TargetRecord:
        """Store `target` as seen now; where its identity is known, only reference and notes change.

        The target seen last under a reference is the one that the reference means.
        """
        values = {**target.model_dump(), "seen_at": utc_now()}
        insert = self.database.insert(TargetTable).values(values)
        changed = ("reference", "kind", "architecture", "license_note", "seen_at")
        statement = insert.on_conflict_do_update(
            index_elements=["identity"], set_={name: insert.excluded[name] for name in changed}
        ).returning(TargetTable)
        with self.database.write() as connection:
            return to_record(TargetRecord, connection.execute(statement).mappings().one())

    def get(self, identity: str) -> TargetRecord | None:
        """Return the target with this content hash, or None."""
        query = select(TargetTable).where(TargetTable.identity == identity)
        with self.database.read() as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else to_record(TargetRecord, row)
