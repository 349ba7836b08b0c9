"""A throw-away PostgreSQL server for tests: private folder, loopback port, stopped at the end."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_ports

START_TIMEOUT_S = 60.0
USER = "specdec"


class PostgresServer:
    """One running server and the databases made on it."""

    def __init__(self, binaries: Path) -> None:
        self._account = _account()
        self._folder = Path(
            tempfile.mkdtemp(prefix="specdec-pg-", dir="/tmp")
        )  # a short socket path
        if self._account:
            shutil.chown(self._folder, "postgres", "postgres")
        (self.port,) = free_ports(1)
        data = self._folder / "data"
        subprocess.run(
            [
                *(binaries / "initdb", "--pgdata", data, "--username", USER, "--auth", "trust"),
                *("--no-sync", "--encoding", "UTF8", "--locale", "C"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
            **self._account,
        )
        settings = ("fsync=off", "synchronous_commit=off", "full_page_writes=off")
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(binaries / "postgres", "-D", data, "-k", self._folder),
                    *("-h", "127.0.0.1", "-p", str(self.port)),
                    *(part for setting in settings for part in ("-c", setting)),
                ],
                stdout=log,
                stderr=log,
                cwd="/",
                **self._account,
            )
        self._wait()

    def url(self, database: str) -> str:
        """Return the URL of a database on this server."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Create an empty database and return its URL."""
        name = f"specdec_{uuid.uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str) -> None:
        """Run one statement as the owner of the server."""
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def stop(self) -> None:
        """End the server by its own process id and remove its folder."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # fast shutdown: clients are disconnected
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
                self._process.wait(30)
        shutil.rmtree(self._folder)

    def _wait(self) -> None:
        import psycopg

        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = (self._folder / "log").read_text()
                    self.stop()
                    pytest.fail(f"PostgreSQL did not start within {START_TIMEOUT_S} s: {log}")
                time.sleep(0.05)
            else:
                return


def _account() -> dict[str, Any]:
    """Return options that run a child as ``postgres`` where we are root: initdb refuses root."""
    if os.geteuid() != 0:
        return {}
    return {"user": "postgres", "group": "postgres", "extra_groups": []}


def _missing() -> str | None:
    """Return why no server can be started here, or None."""
    if _binaries() is None:
        return "PostgreSQL server binaries not found: install the package postgresql"
    if os.geteuid() == 0 and not any(user.pw_name == "postgres" for user in pwd.getpwall()):
        return "user postgres not found: install the package postgresql, or do not test as root"
    try:
        import psycopg  # noqa: F401 - only whether it is there
    except ImportError:
        return "driver psycopg not found: install specdec-lab[postgres]"
    return None


def _binaries() -> Path | None:
    folders = [*Path("/usr/lib/postgresql").glob("*/bin")]
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    usable = [folder for folder in folders if (folder / "initdb").exists()]
    return max(usable, key=_major_version) if usable else None


def _major_version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for the whole session; skipped where none is installed, except on CI."""
    reason = _missing()
    binaries = _binaries()
    if reason is not None or binaries is None:
        if os.environ.get("CI"):
            pytest.fail(f"on CI the PostgreSQL tests must run: {reason}")
        pytest.skip(str(reason))
    server = PostgresServer(binaries)
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """URL of an empty database of its own."""
    return postgres_server.create_database()
