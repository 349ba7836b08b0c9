"""Schema migrations: run once under a lock, checked at every start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from filelock import FileLock, Timeout
from sqlalchemy import Connection

from db.engine import Database, sqlite_engine
from db.faults import store_faults
from db.models import SCHEMA_REVISION, TABLE_PREFIX, VERSION_TABLE, Base
from specdec_core.errors import StoreError

MIGRATION_TIMEOUT_S = 120
_FOLDER = Path(__file__).parent / "migrations"


def migrate(database: Database) -> None:
    """Bring the schema of `database` to the revision of this code, creating what is missing.

    Safe to call from many processes at once: one migrates, the others wait and find it done.

    Raises:
        StoreError: if the database cannot be opened, or has a schema newer than this code.
    """
    if database.is_sqlite:
        _migrate_sqlite(database)
    else:
        _migrate_postgres(database)


def schema_revision(connection: Connection) -> str | None:
    """Return the schema revision stored in the database, or None if it has none of our tables."""
    return migration_context(connection).get_current_revision()


def _migrate_sqlite(database: Database) -> None:
    path = Path(database.url.database or "")
    with store_faults(database.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise StoreError(
                f"database {database.name} is a folder: give the path of a file inside it"
            )
        with _file_lock(path):
            engine = sqlite_engine(database.url, is_migration=True)
            try:
                with engine.begin() as connection:
                    _upgrade(connection, database.name)
            finally:
                engine.dispose()


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=MIGRATION_TIMEOUT_S)
    try:
        with lock:
            yield
    except Timeout as error:
        raise StoreError(
            f"database {path} is being migrated by another process for {MIGRATION_TIMEOUT_S} s: "
            f"end that process and run the command again (lock file {lock.lock_file})"
        ) from error


def _migrate_postgres(database: Database) -> None:
    with database.read() as connection:
        if schema_revision(connection) == SCHEMA_REVISION:
            return
    with database.write() as connection:
        database.lock(connection, VERSION_TABLE)
        _upgrade(connection, database.name)


def _upgrade(connection: Connection, name: str) -> None:
    """Upgrade inside the caller's transaction, so that a killed migration leaves no trace."""
    current = schema_revision(connection)
    if current == SCHEMA_REVISION:
        return
    config = _config()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in known:
        raise StoreError(
            f"database {name} has schema revision {current!r}, this version of specdec-lab knows "
            f"revisions up to {SCHEMA_REVISION!r}: upgrade specdec-lab, or use another database"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, SCHEMA_REVISION)


def _config() -> Config:
    """Return the Alembic configuration, which needs no ini file."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    return config


def run_environment(context: EnvironmentContext) -> None:
    """Run the migrations that Alembic asks for on the connection given to it.

    Called by the environment script of the migrations folder.

    Raises:
        StoreError: if there is no connection, as with Alembic's own command line.
    """
    connection = context.config.attributes.get("connection")
    if connection is None:
        raise StoreError(
            "migrations were started without a connection: call db.migrate.migrate instead of "
            "Alembic's command line"
        )
    context.configure(connection=connection, **_OPTIONS)
    with context.begin_transaction():
        context.run_migrations()


def _include_name(name: str | None, kind: str, _parents: object) -> bool:
    return kind != "table" or (name or "").startswith(TABLE_PREFIX)


_OPTIONS: dict[str, Any] = {
    "target_metadata": Base.metadata,
    "version_table": VERSION_TABLE,
    "include_name": _include_name,  # neighbours in the same database are not ours to drop
    "render_as_batch": True,  # SQLite changes a table by rebuilding it
    "transactional_ddl": True,
    "compare_type": True,
}


def migration_context(connection: Connection) -> MigrationContext:
    """Return Alembic's view of one database, limited to our own tables."""
    return MigrationContext.configure(connection, opts=dict(_OPTIONS))
