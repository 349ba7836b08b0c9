"""What `specdec up` has started, kept in <home>/state.json."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from flows.services.processes import ProcessIdentity
from specdec_core.config.base import Record
from specdec_core.errors import ConfigError

ServiceStatus = Literal["waiting", "starting", "ready", "restarting", "failed", "stopped"]
Phase = Literal["starting", "ready", "degraded", "failed", "stopping"]


class ServiceState(Record):
    """One service as the supervisor last saw it."""

    name: str
    title: str
    process: ProcessIdentity | None = None
    status: ServiceStatus = "waiting"
    address: str | None = Field(None, description="URL for people, if it listens")
    log: str = Field(description="file with the service's output")
    restarts: int = Field(0, ge=0, description="times it was started again after it died")
    message: str = ""


class SupervisorState(Record):
    """Everything `specdec status` and `specdec down` need to know."""

    instance: str = Field(description="id of this start, in the environment of every child")
    process: ProcessIdentity
    phase: Phase = "starting"
    message: str = ""
    notes: tuple[str, ...] = Field((), description="what the user must know, such as other ports")
    started_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    prefect_api_url: str
    mlflow_url: str
    api_url: str
    services: tuple[ServiceState, ...] = ()

    def service(self, name: str) -> ServiceState:
        """Return the service called `name`."""
        return next(service for service in self.services if service.name == name)

    @property
    def is_running(self) -> bool:
        """True if the supervisor that wrote this state is alive."""
        return self.process.is_alive


def state_path(home: Path) -> Path:
    """Where the state of the services of `home` is kept."""
    return home / "state.json"


def load_state(home: Path) -> SupervisorState | None:
    """Return the stored state, or None if nothing was started here.

    Raises:
        ConfigError: if the file is damaged or of another version.
    """
    path = state_path(home)
    try:
        return SupervisorState.model_validate_json(path.read_text())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise ConfigError(
            f"state file {path} is not readable by this version: end what it names and delete it"
        ) from error


def save_state(home: Path, state: SupervisorState) -> None:
    """Write the state by temporary name and rename."""
    path = state_path(home)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(state.model_dump_json(indent=2))
    temporary.replace(path)


def remove_state(home: Path) -> None:
    """Forget the services of `home`; nothing happens if there are none."""
    state_path(home).unlink(missing_ok=True)


@contextlib.contextmanager
def supervisor_lock(home: Path) -> Iterator[bool]:
    """Hold the lock of the one supervisor of `home`; yields False if another holds it.

    The kernel drops the lock when its owner dies, so no stale lock can exist.
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / "supervisor.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def running_state(home: Path) -> SupervisorState | None:
    """Return the stored state if its supervisor is alive.

    Raises:
        ConfigError: if the file is damaged or of another version.
    """
    state = load_state(home)
    return state if state is not None and state.is_running else None
