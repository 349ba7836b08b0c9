"""What several repositories share: paging, required rows, records from rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import BindParameter, ColumnElement, Connection, Select, func, or_, select

from db.engine import Database
from db.models import Base, RunTable
from specdec_core.errors import ConfigError, StoreError

RecordT = TypeVar("RecordT", bound=BaseModel)
SelectT = TypeVar("SelectT", bound="Select[*tuple[Any, ...]]")
DEFAULT_LIMIT = 100
MAX_ROW = 2**31 - 1
MAX_MESSAGE_CHARACTERS = 10_000


def to_record(record: type[RecordT], row: Mapping[Any, Any]) -> RecordT:
    """Return the record with the columns of `row` that it has fields for."""
    return record.model_validate({name: row[name] for name in record.model_fields if name in row})


def matching(
    table: type[Base], *, target: str | None = None, **filters: object
) -> list[ColumnElement[bool]]:
    """Return one condition per filter that is not None.

    Args:
        table: What is asked for.
        target: Model reference or identity.
        filters: Values that columns of these names must have.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    conditions = [getattr(table, name) == value for name, value in given.items()]
    return conditions if target is None else [*conditions, of_target(table, target)]


def of_target(table: Any, target: str | BindParameter[str]) -> ColumnElement[bool]:
    """Return the condition that rows of `table` are of a target.

    Args:
        table: A table with `target` and `target_identity`.
        target: Model reference or identity.
    """
    return or_(table.target == target, table.target_identity == target)


def page(statement: SelectT, limit: int | None, offset: int) -> SelectT:
    """Return `statement` cut to a page; a limit of None means all rows.

    Raises:
        ConfigError: if the limit or the offset is negative or beyond 32 bits.
    """
    if not all(0 <= number <= MAX_ROW for number in (limit or 0, offset)):
        raise ConfigError(
            f"page of limit {limit}, offset {offset}: give numbers from 0 to {MAX_ROW}"
        )
    return statement.limit(limit).offset(offset)


def read_page(
    database: Database,
    record: type[RecordT],
    statement: Select[Any],
    limit: int | None,
    offset: int,
) -> list[RecordT]:
    """Return the records of one page of `statement`.

    Raises:
        ConfigError: as `page`.
    """
    with database.read() as connection:
        rows = connection.execute(page(statement, limit, offset)).mappings()
        return [to_record(record, row) for row in rows]


def count_rows(
    database: Database, table: type[Base], conditions: Iterable[ColumnElement[bool]]
) -> int:
    """Return the number of rows of `table` that meet every condition."""
    with database.read() as connection:
        return connection.execute(
            select(func.count()).select_from(table).where(*conditions)
        ).scalar_one()


def storable_message(text: str) -> str:
    """Return an error text cut to `MAX_MESSAGE_CHARACTERS`, without what no database stores."""
    encoded = text[:MAX_MESSAGE_CHARACTERS].encode("utf-8", "replace")
    return encoded.decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def require_run(connection: Connection, run_id: str) -> None:
    """Check that a run is stored.

    Raises:
        StoreError: if it is not.
    """
    if connection.execute(select(RunTable.id).where(RunTable.id == run_id)).first() is None:
        raise StoreError(f"run {run_id!r} is not stored: create it with store.runs.create first")
