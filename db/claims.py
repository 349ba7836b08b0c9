"""Claims: who is working on which evaluation, so that no two processes do the same one.

A claim is a lock that the operating system or the database server holds for this process and
frees when it dies, however it dies: nothing has to be cleaned up and no heartbeat is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from db.engine import Database
from db.faults import store_faults
from specdec_core.errors import StoreError

# Lock files are never removed, as another process may be about to lock them; so there are at most
# 16 ** 3 of them, empty, and keys with the same beginning share one.
_BUCKET_DIGITS = 3


@dataclass(slots=True)
class Claims:
    """The claims of one open store.

    On SQLite a claim is a locked file beside the database, on PostgreSQL an advisory lock of a
    connection of its own. Two keys may share a lock: then the second waits for the first, which
    costs time and never a result.
    """

    database: Database
    _keys: set[str] = field(default_factory=set)
    _files: dict[str, int] = field(default_factory=dict)
    _connection: Connection | None = None

    def take(self, key: str) -> bool:
        """Claim a key; True if it is this store's from now on, or was before.

        Raises:
            StoreError: if the lock cannot be asked for.
        """
        if key not in self._keys:
            taken = self._lock_file(key) if self.database.is_sqlite else self._lock_row(key)
            if not taken:
                return False
            self._keys.add(key)
        return True

    def release(self, key: str) -> None:
        """Give a key up; nothing happens where it is not this store's."""
        if key not in self._keys:
            return
        self._keys.remove(key)
        if not self.database.is_sqlite:
            self._ask("pg_advisory_unlock", key)
        elif _bucket(key) not in {_bucket(each) for each in self._keys}:
            os.close(self._files.pop(_bucket(key)))

    def close(self) -> None:
        """Give every key up."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._keys.clear()
        if self._connection is not None:
            # Locks belong to the session: the server would free them a moment after it has ended,
            # and it must not go back to the pool with any.
            with contextlib.suppress(SQLAlchemyError):  # a server that is gone has freed them
                self._connection.execute(text("SELECT pg_advisory_unlock_all()"))
            self._connection.invalidate()
            self._connection.close()
            self._connection = None

    def _lock_file(self, key: str) -> bool:
        name = _bucket(key)
        if name in self._files:
            return True
        path = Path(f"{self.database.url.database}.claims") / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StoreError(
                f"lock file {path} cannot be opened ({error}): check that its folder can be written"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._files[name] = file
        return True

    def _lock_row(self, key: str) -> bool:
        return self._ask("pg_try_advisory_lock", key)

    def _ask(self, function: str, key: str) -> bool:
        with store_faults(self.database.name):
            if self._connection is None:
                options = {"isolation_level": "AUTOCOMMIT"}
                self._connection = self.database.writer.connect().execution_options(**options)
            query = text(f"SELECT {function}(hashtextextended(:key, 0))")
            return bool(self._connection.execute(query, {"key": key}).scalar())


def _bucket(key: str) -> str:
    return key[:_BUCKET_DIGITS]
