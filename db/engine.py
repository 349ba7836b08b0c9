"""Connections to SQLite and PostgreSQL with the settings that make concurrent writers exact."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from db.faults import store_faults
from db.models import Base
from specdec_core.errors import ConfigError, StoreError

BUSY_TIMEOUT_S = 30
CONNECT_TIMEOUT_S = 10
_READER_CONNECTIONS = 48  # the REST server reads from up to 40 threads at once

_to_json = partial(json.dumps, separators=(",", ":"))


def parse_url(url: str) -> URL:
    """Return `url` in the form that the engines need.

    ``postgres://`` and ``postgresql://`` mean psycopg 3 here.

    Raises:
        ConfigError: if it is no URL, names another database system, or SQLite without a file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise ConfigError(
            f"database URL {url!r} is not understood: write sqlite:////absolute/path.db or "
            "postgresql://user:password@host/database"
        ) from error
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise ConfigError(
            f"database system {parsed.drivername!r} is not supported: use sqlite:///path.db or "
            "postgresql://user:password@host/database"
        )
    if not parsed.database or parsed.database == ":memory:" or parsed.database.startswith("file:"):
        raise ConfigError(
            f"database URL {url!r} names no file: write sqlite:///path.db, results are kept on disk"
        )
    return parsed.set(drivername="sqlite", database=str(Path(parsed.database).absolute()))


@dataclass(frozen=True, slots=True)
class Database:
    """The engines of one database: writers take turns, readers never wait for them on SQLite."""

    url: URL
    writer: Engine
    reader: Engine

    @classmethod
    def connect(cls, url: str) -> Database:
        """Return the database at `url`; connections are opened when they are first used.

        Raises:
            ConfigError: if the URL cannot be used.
            StoreError: if the driver is not installed.
        """
        parsed = parse_url(url)
        if parsed.drivername == "sqlite":
            return cls(parsed, sqlite_engine(parsed), sqlite_engine(parsed, is_reader=True))
        engine = _postgres_engine(parsed)
        return cls(parsed, engine, engine)

    @property
    def name(self) -> str:
        """URL without password, for messages."""
        return self.url.render_as_string(hide_password=True)

    @property
    def is_sqlite(self) -> bool:
        """True for SQLite, False for PostgreSQL."""
        return self.url.drivername == "sqlite"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction that may write; rolled back if the block raises.

        Raises:
            StoreError: for any fault of the database.
        """
        with store_faults(self.name), self.writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view that does not wait for writers.

        Raises:
            StoreError: for any fault of the database, or stored data this version cannot read.
        """
        with store_faults(self.name), self.reader.connect() as connection:
            yield connection

    def insert(self, table: type[Base]) -> postgresql.Insert:
        """Return an insert into `table` that has the ``on_conflict`` clauses of both systems."""
        if self.is_sqlite:
            return sqlite.insert(table)  # type: ignore[return-value]  # same clauses, no common type
        return postgresql.insert(table)

    def lock(self, connection: Connection, name: str) -> None:
        """Let one transaction at a time pass with this name, until it ends.

        On SQLite writers take turns anyway.
        """
        if not self.is_sqlite:
            connection.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name}
            )

    def close(self) -> None:
        """Close every pooled connection."""
        self.writer.dispose()
        self.reader.dispose()


def sqlite_engine(url: URL, *, is_reader: bool = False, is_migration: bool = False) -> Engine:
    """Return an engine for the SQLite file of `url`.

    Writers begin with a lock (``BEGIN IMMEDIATE``), so that no update is lost and waiting is
    bounded by `BUSY_TIMEOUT_S`. Migrations do not enforce foreign keys, because SQLite rebuilds
    a table to change it.
    """
    pragmas = ["journal_mode=WAL", "synchronous=NORMAL"]
    pragmas.append(f"foreign_keys={'OFF' if is_migration else 'ON'}")
    if is_reader:
        pragmas.append("query_only=ON")
    options: dict[str, Any] = {"poolclass": NullPool} if is_migration else {}
    if is_reader:
        options = {"pool_size": _READER_CONNECTIONS, "max_overflow": 0}
    engine = create_engine(
        url,
        connect_args={"timeout": BUSY_TIMEOUT_S},
        json_serializer=_to_json,
        **options,
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")

    return engine


def _postgres_engine(url: URL) -> Engine:
    options: dict[str, Any] = {"json_serializer": _to_json, "pool_pre_ping": True}
    if "connect_timeout" not in url.query:
        options["connect_args"] = {"connect_timeout": CONNECT_TIMEOUT_S}
    try:
        engine = create_engine(url, **options)
    except ModuleNotFoundError as error:
        raise StoreError(
            f"database {url.render_as_string(hide_password=True)} needs the PostgreSQL driver, "
            "which is not installed: pip install 'specdec-lab[postgres]'"
        ) from error

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        connection.autocommit = True
        connection.execute(f"SET lock_timeout = '{BUSY_TIMEOUT_S}s'")
        connection.autocommit = False

    return engine
