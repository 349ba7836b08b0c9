"""What `specdec up`, `status` and `down` do, as functions that return records."""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from flows.services import plan
from flows.services.http import is_answering
from flows.services.processes import (
    INSTANCE_VARIABLE,
    end_processes,
    instance_processes,
    wait_until_gone,
)
from flows.services.shutdown import stop_services
from flows.services.state import SupervisorState, load_state, remove_state
from flows.services.supervisor import ServiceError, Supervisor
from specdec_core.config.base import Record
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError

_START_TIMEOUT_S = 600.0
_STOP_TIMEOUT_S = 120.0
_HEALTH_PATHS = {"prefect": "/api/health", "mlflow": "/health", "api": "/api/v1/health"}
# The port that prefect.toml of the checkout names.
_DEFAULT_PREFECT_URL = "http://127.0.0.1:4200/api"

Say = Callable[[str], None]


class ServiceReport(Record):
    """One service as it is right now."""

    name: str
    title: str
    status: str
    pid: int | None = None
    is_alive: bool
    is_answering: bool | None = None
    address: str | None = None
    log: str
    restarts: int = 0
    message: str = ""


class StatusReport(Record):
    """The services of one state folder as they are right now."""

    home: str
    is_running: bool
    phase: str
    message: str = ""
    notes: tuple[str, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    services: tuple[ServiceReport, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True if the supervisor and every service work."""
        return self.is_running and self.phase == "ready"


def up(settings: Settings, say: Say, concurrent_runs: int = 1) -> StatusReport:
    """Start the services in the background and wait until they work; nothing if they do.

    Raises:
        ConfigError: if no run could ever start.
        ServiceError: if a service does not start; the message names its log.
    """
    _check_concurrency(concurrent_runs)
    state = load_state(settings.home_dir)
    if state is not None and state.is_running:
        say("services are already running")
        process = None
    else:
        process = _spawn(settings, concurrent_runs)
    return _await_ready(settings, process, say)


def up_in_foreground(settings: Settings, say: Say, concurrent_runs: int = 1) -> int:
    """Start the services, watch them until interrupted, end them; return the exit code."""
    _check_concurrency(concurrent_runs)
    return Supervisor(settings, secrets.token_hex(16), say, concurrent_runs).run()


def status(settings: Settings) -> StatusReport:
    """Look at every service; a dead one is reported, not started."""
    state = load_state(settings.home_dir)
    home = str(settings.home_dir)
    if state is None:
        return StatusReport(home=home, is_running=False, phase="stopped")
    reports = tuple(_look(state, service.name) for service in state.services)
    phase, message = state.phase, state.message
    if not state.is_running and phase != "failed":
        phase, message = "failed", "the supervisor died: `specdec up` cleans up and starts again"
    elif phase == "ready" and not all(r.is_alive and r.is_answering is not False for r in reports):
        phase = "degraded"
    return StatusReport(
        home=home,
        is_running=state.is_running,
        phase=phase,
        message=message,
        notes=state.notes,
        environment=environment(settings) if state.is_running else {},
        services=reports,
    )


def down(settings: Settings, say: Say) -> int:
    """End every process that `up` started; return 0, also if there was none.

    Raises:
        ServiceError: if a process survives.
    """
    state = load_state(settings.home_dir)
    if state is None:
        say("no services are running")
        return 0
    supervisor = state.process.find()
    if supervisor is not None:
        say("ending the services; runs first, then the worker, then the servers")
        supervisor.terminate()
        if not wait_until_gone(state.process, _STOP_TIMEOUT_S):
            say("the supervisor does not end: forcing it")
            end_processes([supervisor], 1.0)
    latest = load_state(settings.home_dir)
    if latest is not None:
        stop_services(latest, say)
    left = instance_processes(state.instance)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise ServiceError(f"processes {pids} could not be ended: end them by hand")
    remove_state(settings.home_dir)
    say("all services have ended")
    return 0


def environment(settings: Settings) -> dict[str, str]:
    """Variables that let other programs talk to the running services; empty if none run.

    Raises:
        ConfigError: if the state file is damaged.
    """
    state = load_state(settings.home_dir)
    if state is None or not state.is_running:
        return {}
    return {
        "PREFECT_API_URL": state.prefect_api_url,
        "MLFLOW_TRACKING_URI": state.mlflow_url,
        "SPECDEC_HOME": str(settings.home_dir),
        "SPECDEC_API_URL": state.api_url,
    }


def export_lines(variables: dict[str, str]) -> str:
    """Shell text for ``eval "$(specdec env)"``."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def client_hint(report: StatusReport) -> str:
    """How another shell reaches these services with the prefect command."""
    url = report.environment.get("PREFECT_API_URL", "")
    line = f"export PREFECT_API_URL={url}"
    if url == _DEFAULT_PREFECT_URL:
        return f"in this folder `prefect` finds the server by prefect.toml; elsewhere: {line}"
    return f'for `prefect` commands in another shell: {line}   (or eval "$(specdec env)")'


def _check_concurrency(concurrent_runs: int) -> None:
    if concurrent_runs < 1:
        raise ConfigError(f"--concurrent-runs {concurrent_runs} runs nothing: give 1 or more")


def _spawn(settings: Settings, concurrent_runs: int) -> subprocess.Popen[bytes]:
    logs = settings.home_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    paths = [str(plan.PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    overrides = {
        INSTANCE_VARIABLE: secrets.token_hex(16),
        "SPECDEC_HOME": str(settings.home_dir),
        "SPECDEC_CACHE": str(settings.cache_dir),
        "SPECDEC_CONCURRENT_RUNS": str(concurrent_runs),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    with _supervisor_log(settings).open("wb") as log:
        return subprocess.Popen(
            (sys.executable, "-m", "flows.services"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **overrides},
            start_new_session=True,
        )


def _await_ready(
    settings: Settings, process: subprocess.Popen[bytes] | None, say: Say
) -> StatusReport:
    """Follow the supervisor's log until the services work or it gives up."""
    log_path = _supervisor_log(settings)
    shown = 0 if process is not None else None
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        ended = process is not None and process.poll() is not None
        if shown is not None:
            shown = _say_new_lines(log_path, shown, say)
        state = load_state(settings.home_dir)
        if ended or (process is None and (state is None or not state.is_running)):
            # The state may be an earlier start's, whose reason is not this one's.
            is_own = state is not None and (process is None or state.process.pid == process.pid)
            message = state.message if state is not None and is_own else ""
            raise ServiceError(message or f"the supervisor ended: see {log_path}")
        if state is not None and state.is_running and state.phase in {"ready", "degraded"}:
            return status(settings)
        time.sleep(0.2)
    raise ServiceError(f"services were not ready after {_START_TIMEOUT_S:.0f} s: see {log_path}")


def _say_new_lines(path: Path, shown: int, say: Say) -> int:
    """Pass on the complete lines after byte `shown`, without their time stamps."""
    with path.open("rb") as log:
        log.seek(shown)
        text = log.read()
    complete = text[: text.rfind(b"\n") + 1]
    for line in complete.decode(errors="replace").splitlines():
        parts = line.split(" ", 2)
        say(parts[2] if len(parts) == 3 and parts[0][:2].isdigit() else line)
    return shown + len(complete)


def _look(state: SupervisorState, name: str) -> ServiceReport:
    service = state.service(name)
    is_alive = service.process is not None and service.process.is_alive
    answers = None
    if is_alive and service.address is not None:
        answers = is_answering(service.address + _HEALTH_PATHS[name])
    return ServiceReport(
        name=name,
        title=service.title,
        status=service.status if is_alive or service.process is None else "dead",
        pid=service.process.pid if service.process and is_alive else None,
        is_alive=is_alive,
        is_answering=answers,
        address=service.address,
        log=service.log,
        restarts=service.restarts,
        message=service.message,
    )


def _supervisor_log(settings: Settings) -> Path:
    return settings.home_dir / "logs" / "supervisor.log"
