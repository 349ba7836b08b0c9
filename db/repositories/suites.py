"""Evaluation suites known to the store."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from db.engine import Database
from db.models import SuiteTable
from db.repositories.common import to_record
from db.schemas import SuiteRecord


@dataclass(frozen=True, slots=True)
class SuiteRepository:
    """Reads and writes suites by content hash."""

    database: Database

    def put(self, suite: SuiteRecord) -> SuiteRecord:
        """Store `suite`; where its content is known, only name, domain and source change."""
        insert = self.database.insert(SuiteTable).values(suite.model_dump())
        changed = ("name", "domain", "source")
        statement = insert.on_conflict_do_update(
            index_elements=["content_hash"], set_={name: insert.excluded[name] for name in changed}
        ).returning(SuiteTable)
        with self.database.write() as connection:
            return to_record(SuiteRecord, connection.execute(statement).mappings().one())

    def get(self, content_hash: str) -> SuiteRecord | None:
        """Return the suite with this content hash, or None."""
        query = select(SuiteTable).where(SuiteTable.content_hash == content_hash)
        with self.database.read() as connection:
            row = connection.execute(query).mappings().first()
            return None if row is None else to_record(SuiteRecord, row)
