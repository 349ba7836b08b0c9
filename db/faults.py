"""Errors of drivers and of stored data, told as `StoreError` with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pydantic
import sqlalchemy.exc as sa

from specdec_core.errors import StoreError

# Driver text (lower case) and the sentence that explains it; the first match counts.
_EXPLANATIONS = (
    (
        "database or disk is full",
        "is full: free disk space, or move it with SPECDEC_HOME or SPECDEC_DATABASE_URL",
    ),
    (
        "no space left",
        "is full: free disk space on the database server",
    ),
    (
        "disk i/o error",
        "cannot be read or written: check free disk space and the disk under it",
    ),
    (
        "database is locked",
        "stayed locked by another process: wait for it to end, or use PostgreSQL for many writers",
    ),
    (
        "lock timeout",
        "stayed locked by another process: wait for it to end and run the command again",
    ),
    (
        "readonly database",
        "is read-only: give write permission on the file and its folder, or choose another place",
    ),
    (
        "unable to open database file",
        "cannot be opened: check that its folder exists and that you may write there",
    ),
    (
        "not a database",
        "is not a SQLite database: move the file away, or correct SPECDEC_DATABASE_URL",
    ),
    (
        "malformed",
        "is damaged: restore it from a copy, or move the file away to start anew",
    ),
    (
        "no such table",
        "has lost tables of its schema: restore it from a copy, or start with a new one",
    ),
    (
        "permission denied",
        "refuses this user: grant it CREATE and USAGE on the schema, or use another user",
    ),
    (
        "too many clients",
        "has no free connection: close other clients, or raise max_connections",
    ),
)
_UNREACHABLE = (
    "connection failed",
    "connection refused",
    "connection timeout",
    "could not connect",
    "failed to resolve",
    "server closed the connection",
    "the connection is closed",
    "connection is lost",
    "terminating connection",
    "shutting down",
    "starting up",
    "queuepool limit",
)


@contextmanager
def store_faults(database: str) -> Iterator[None]:
    """Turn every fault of the database named `database` inside the block into `StoreError`.

    Args:
        database: URL without password, for the message.

    Raises:
        StoreError: for any error of SQLAlchemy, its drivers or the file system, and for stored
            data that does not fit the records of this version.
    """
    try:
        yield
    except (sa.SQLAlchemyError, OverflowError) as error:  # SQLite's driver does not wrap the latter
        raise StoreError(f"database {database} {_explain(error)}") from error
    except pydantic.ValidationError as error:
        raise StoreError(
            f"database {database} holds a {error.title} that this version cannot read: "
            f"{_problems(error)}; upgrade specdec-lab, or remove the row"
        ) from error
    except OSError as error:
        raise StoreError(
            f"database {database} cannot be opened: {error}; choose a folder that you may write "
            "to with SPECDEC_HOME or SPECDEC_DATABASE_URL"
        ) from error


def _explain(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    text = " ".join(str(cause).split())
    lowered = text.lower()
    for fragment, explanation in _EXPLANATIONS:
        if fragment in lowered:
            return f"{explanation} ({text})"
    if any(fragment in lowered for fragment in _UNREACHABLE):
        return f"cannot be reached: {text}; start the server, or correct SPECDEC_DATABASE_URL"
    if isinstance(error, sa.IntegrityError):
        return f"refused the row, it contradicts what is stored: {text}"
    if isinstance(cause, ValueError | OverflowError | TypeError):
        return f"cannot hold a value: {text}"
    return f"failed: {type(cause).__name__}: {text}"


def _problems(error: pydantic.ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
        for problem in error.errors()
    )
