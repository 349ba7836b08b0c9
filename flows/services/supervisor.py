"""The process that starts the services, watches them, and ends them. Run by `specdec up`."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from flows.services import plan
from flows.services.plan import ServiceSpec
from flows.services.prefect_api import PrefectApi
from flows.services.processes import (
    ProcessIdentity,
    end_processes,
    flow_run_processes,
    session_processes,
)
from flows.services.reaper import reap
from flows.services.shutdown import stop_services
from flows.services.state import (
    Phase,
    ServiceState,
    ServiceStatus,
    SupervisorState,
    load_state,
    remove_state,
    save_state,
    supervisor_lock,
)
from specdec_core.config.settings import Settings
from specdec_core.errors import SpecDecError

MAX_RESTARTS = 3
_POLL_S = 0.5
_LOG_TAIL_LINES = 15


class ServiceError(SpecDecError):
    """A service did not start; the message names its log file."""


class _StopRequested(Exception):
    """The supervisor was asked to end."""


class Supervisor:
    """Owns the service processes of one state folder for the time of `run`."""

    def __init__(
        self,
        settings: Settings,
        instance: str,
        say: Callable[[str], None],
        concurrent_runs: int = 1,
    ) -> None:
        self._settings = settings
        self._instance = instance
        self._say = say
        self._concurrent_runs = concurrent_runs
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._specs: dict[str, ServiceSpec] = {}
        self._environment: dict[str, str] = {}
        self._state: SupervisorState | None = None
        self._stop = False

    @property
    def state(self) -> SupervisorState:
        """The state as last written."""
        if self._state is None:
            raise ServiceError("the supervisor has not been started")
        return self._state

    def run(self) -> int:
        """Start everything, watch it until asked to end, end it; return the exit code."""
        home = self._settings.home_dir
        with supervisor_lock(home) as is_ours:
            if not is_ours:
                self._say(f"services of {home} are already running: see `specdec status`")
                return 1
            self._end_earlier_start(home)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._request_stop)
            try:
                self._prepare()
                self._start_all()
                self._watch()
            except _StopRequested:
                self._shut_down("stopping")
            except (SpecDecError, OSError) as error:
                self._say(str(error))
                self._shut_down("failed", str(error))
                return 1
            remove_state(home)
            return 0

    def _request_stop(self, _number: int, _frame: object) -> None:
        self._stop = True

    def _end_earlier_start(self, home: Path) -> None:
        earlier = load_state(home)
        if earlier is not None and earlier.phase != "failed":
            count = stop_services(earlier, self._say)
            self._say(f"an earlier start did not end properly: ended {count} processes it left")

    def _prepare(self) -> None:
        settings = self._settings
        ports, notes = plan.choose_ports(settings)
        for note in notes:
            self._say(note)
        process = ProcessIdentity.of(os.getpid())
        if process is None:
            raise ServiceError("this process cannot be inspected: is /proc mounted?")
        prefect_url = f"{plan.service_url(settings, ports.prefect)}/api"
        self._environment = plan.child_environment(settings, ports, self._instance)
        self._prefect = PrefectApi(prefect_url, plan.POOL)
        (settings.home_dir / "logs").mkdir(parents=True, exist_ok=True)
        specs = plan.server_specs(settings, ports)
        worker = plan.worker_spec(self._prefect, self._instance, self._concurrent_runs)
        self._specs = {spec.name: spec for spec in (*specs, worker)}
        self._state = SupervisorState(
            instance=self._instance,
            process=process,
            notes=notes,
            prefect_api_url=prefect_url,
            mlflow_url=plan.tracking_url(settings, ports),
            api_url=plan.service_url(settings, ports.api),
            services=tuple(
                ServiceState(
                    name=spec.name,
                    title=spec.title,
                    address=spec.address,
                    log=str(self._log_path(spec.name)),
                )
                for spec in self._specs.values()
            ),
        )
        save_state(settings.home_dir, self._state)

    def _start_all(self) -> None:
        servers = [spec for spec in self._specs.values() if spec.name != "worker"]
        for spec in servers:
            self._start(spec)
        self._await_healthy(self._specs["prefect"])
        self._make_deployments()
        for spec in servers[1:]:
            self._await_healthy(spec)
        self._start_worker()
        self._set_phase("ready")
        self._say("all services are ready")

    def _start_worker(self) -> None:
        self._reap()
        self._start(self._specs["worker"])
        self._await_healthy(self._specs["worker"])

    def _reap(self) -> None:
        try:
            reap(self._prefect, set(flow_run_processes()), self._say)
        except OSError as error:
            self._say(f"runs without a process could not be looked for: {error}")

    def _start(self, spec: ServiceSpec, status: ServiceStatus = "starting") -> None:
        with self._log_path(spec.name).open("ab") as log:
            child = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=plan.PROJECT_ROOT,
                env={**self._environment, **spec.environment},
                start_new_session=True,
            )
        self._children[spec.name] = child
        self._update(spec.name, process=ProcessIdentity.of(child.pid), status=status)
        self._say(f"{spec.title} is starting, process {child.pid}")

    def _await_healthy(self, spec: ServiceSpec) -> None:
        """Wait for a service to answer.

        Raises:
            ServiceError: if it ends or does not answer in time.
        """
        deadline = time.monotonic() + spec.start_timeout_s
        while not spec.is_healthy():
            self._check_stop()
            code = self._children[spec.name].poll()
            if code is not None:
                raise ServiceError(self._failure(spec, f"ended with exit code {code}"))
            if time.monotonic() > deadline:
                late = f"did not answer within {spec.start_timeout_s:.0f} s"
                raise ServiceError(self._failure(spec, late))
            time.sleep(_POLL_S)
        self._update(spec.name, status="ready")
        self._say(f"{spec.title} is ready" + (f": {spec.address}" if spec.address else ""))

    def _make_deployments(self) -> None:
        log_path = self._log_path("deploy")
        for command in plan.deployment_commands():
            self._check_stop()
            with log_path.open("ab") as log:
                code = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=plan.PROJECT_ROOT,
                    env=self._environment,
                    check=False,
                ).returncode
            if code != 0:
                shown = " ".join(command[2:])
                raise ServiceError(f"`{shown}` failed with exit code {code}: see {log_path}")
        self._say("work pool and deployments of prefect.yaml are registered")

    def _watch(self) -> None:
        """Look after the services until asked to end."""
        while True:
            self._check_stop()
            for spec in self._specs.values():
                self._look_after(spec)
            time.sleep(_POLL_S)

    def _look_after(self, spec: ServiceSpec) -> None:
        service = self.state.service(spec.name)
        if service.status == "restarting" and spec.is_healthy():
            self._update(spec.name, status="ready", message="")
            self._say(f"{spec.title} is ready again")
        code = self._children[spec.name].poll()
        if code is None or service.status == "failed":
            return
        if service.restarts >= MAX_RESTARTS:
            text = self._failure(spec, f"died {service.restarts + 1} times, exit code {code}")
            self._update(spec.name, status="failed", process=None, message=text)
            self._set_phase("degraded", text)
            self._say(text)
            return
        number = service.restarts + 1
        self._say(
            f"{spec.title} died with exit code {code}; starting it again "
            f"({number} of at most {MAX_RESTARTS}); its log: {service.log}"
        )
        self._update(spec.name, restarts=number, status="restarting", process=None)
        # Its own children may have survived it and still hold the port.
        end_processes(session_processes(self._instance, self._children[spec.name].pid), 5.0)
        if spec.name == "worker":
            self._reap()
        self._start(spec, "restarting")

    def _shut_down(self, phase: Phase, message: str = "") -> None:
        if self._state is None:
            return
        self._set_phase(phase, message)
        stop_services(self.state, self._say)
        for child in self._children.values():
            child.wait()
        for name in self._children:
            self._update(name, status="stopped", process=None)

    def _check_stop(self) -> None:
        if self._stop:
            raise _StopRequested

    def _update(self, name: str, **changes: object) -> None:
        services = tuple(
            service.model_copy(update=changes) if service.name == name else service
            for service in self.state.services
        )
        self._save(services=services)

    def _set_phase(self, phase: Phase, message: str = "") -> None:
        self._save(phase=phase, message=message)

    def _save(self, **changes: object) -> None:
        self._state = self.state.model_copy(update=changes)
        save_state(self._settings.home_dir, self._state)

    def _log_path(self, name: str) -> Path:
        return self._settings.home_dir / "logs" / f"{name}.log"

    def _failure(self, spec: ServiceSpec, what: str) -> str:
        path = self._log_path(spec.name)
        lines = path.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join((f"{spec.title} {what}: see {path}", *(f"    {line}" for line in lines)))
