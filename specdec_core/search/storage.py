"""The file side of a study: its lock, and how its database is opened."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from pathlib import Path
from typing import Any, TextIO

from specdec_core.errors import StoreError


def try_lock(path: Path) -> TextIO | None:
    """Lock a file until it is closed or this process dies; None if another one holds it.

    Raises:
        StoreError: if the file cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    except OSError as error:
        raise StoreError(
            f"lock file {path} cannot be opened ({error}): check that its folder can be written"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    os.set_inheritable(file.fileno(), False)
    return file


class _QuickConnection(sqlite3.Connection):
    """SQLite that does not wait for the disk at every commit: Optuna commits each parameter.

    A power cut may lose the last trials, which the store still has.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


def engine_options(url: str) -> dict[str, Any]:
    """Return what SQLAlchemy needs for the storage at `url`; makes the folder of a file."""
    if not url.startswith("sqlite"):
        return {}
    folder = Path(url.removeprefix("sqlite:///")).parent
    folder.mkdir(parents=True, exist_ok=True)
    return {"connect_args": {"timeout": 30, "factory": _QuickConnection}}


def without_password(url: str) -> str:
    """Return `url` as it may be shown, a password in it hidden."""
    return re.sub(r"://([^:/@]*):[^@]*@", r"://\1:***@", url)
