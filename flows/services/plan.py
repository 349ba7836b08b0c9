"""What `specdec up` starts: ports, environment and command of every service."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from flows.services.http import is_answering
from flows.services.prefect_api import PrefectApi
from flows.services.processes import INSTANCE_VARIABLE
from specdec_core.config.base import Record
from specdec_core.config.settings import QUIET_ENVIRONMENT, Settings
from specdec_core.errors import ConfigError

POOL = "specdec"
API_FACTORY = "dashboards.app:create_app"
PROJECT_ROOT = Path(__file__).resolve().parents[2]
_WILDCARD_HOSTS = {"0.0.0.0", "::"}


class Ports(Record):
    """Ports of one start."""

    prefect: int
    mlflow: int
    api: int


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """How one service is started, recognised as working, and ended. Times in seconds."""

    name: str
    title: str
    command: tuple[str, ...]
    is_healthy: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    start_timeout_s: float = 180.0


def choose_ports(settings: Settings) -> tuple[Ports, tuple[str, ...]]:
    """Return free ports and a note for each default that another program has taken.

    Raises:
        ConfigError: if a port that the user set explicitly is taken.
    """
    chosen: dict[str, int] = {}
    notes = []
    for name, title in (("prefect", "Prefect"), ("mlflow", "MLflow"), ("api", "the REST API")):
        wanted: int = getattr(settings, f"{name}_port")
        port = wanted
        if wanted in chosen.values() or not _is_free(settings.host, wanted):
            if f"{name}_port" in settings.model_fields_set:
                raise ConfigError(
                    f"port {wanted} for {title} (SPECDEC_{name.upper()}_PORT) is taken by another "
                    "program: choose another port or end that program"
                )
            port = _free_port(settings.host, set(chosen.values()))
            notes.append(f"port {wanted} is taken by another program: {title} uses {port}")
        chosen[name] = port
    return Ports(**chosen), tuple(notes)


def client_host(host: str) -> str:
    """The name under which a program on this machine reaches a service listening on `host`."""
    return "127.0.0.1" if host in _WILDCARD_HOSTS else host


def service_url(settings: Settings, port: int) -> str:
    """Base URL of a local service."""
    return f"http://{client_host(settings.host)}:{port}"


def has_own_mlflow(settings: Settings) -> bool:
    """True if `up` starts an MLflow server, False if the settings name a running one."""
    return urlsplit(settings.resolved_mlflow_url).scheme not in {"http", "https"}


def tracking_url(settings: Settings, ports: Ports) -> str:
    """Where flows log to: our MLflow server, or the one that the settings name."""
    if has_own_mlflow(settings):
        return service_url(settings, ports.mlflow)
    return settings.resolved_mlflow_url


def child_environment(settings: Settings, ports: Ports, instance: str) -> dict[str, str]:
    """Environment of every service and, through the worker, of every flow run.

    Folders are made absolute, because a flow run works in another folder than the user.
    """
    environment = {**os.environ, **QUIET_ENVIRONMENT}
    paths = [str(PROJECT_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment.update(
        {
            INSTANCE_VARIABLE: instance,
            "SPECDEC_HOME": str(settings.home_dir),
            "SPECDEC_CACHE": str(settings.cache_dir),
            "SPECDEC_MLFLOW_URL": tracking_url(settings, ports),
            "PREFECT_HOME": str(settings.home_dir / "prefect"),
            "PREFECT_API_URL": f"{service_url(settings, ports.prefect)}/api",
            "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            # Warnings of our own loggers appear on the page of the run.
            "PREFECT_LOGGING_EXTRA_LOGGERS": "specdec_core,tasks,db,flows",
            "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "PWD": str(PROJECT_ROOT),
        }
    )
    if settings.data is not None and settings.data.expanduser().is_dir():
        environment["SPECDEC_DATA"] = str(settings.data.expanduser().absolute())
    return environment


def server_specs(settings: Settings, ports: Ports) -> list[ServiceSpec]:
    """The services that listen: Prefect server, MLflow unless it runs elsewhere, REST API."""
    specs = [_prefect_spec(settings, ports)]
    if has_own_mlflow(settings):
        specs.append(_mlflow_spec(settings, ports))
    return [*specs, _api_spec(settings, ports)]


def worker_spec(api: PrefectApi, instance: str, concurrent_runs: int) -> ServiceSpec:
    """The process that takes flow runs of the work pool and starts them on this machine."""
    name = f"specdec-{instance[:8]}"
    command = (sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL)
    options = ("--type", "process", "--name", name, "--limit", str(concurrent_runs))
    return ServiceSpec(
        "worker", "Prefect worker", (*command, *options), lambda: name in api.online_workers()
    )


def deployment_commands() -> list[tuple[str, ...]]:
    """The commands that make the work pool and the deployments of prefect.yaml, repeatable.

    Raises:
        ConfigError: if this is not a checkout with its prefect.yaml.
    """
    manifest = PROJECT_ROOT / "prefect.yaml"
    if not manifest.is_file():
        raise ConfigError(
            f"{manifest} does not exist: `specdec up` works from a clone installed with "
            "`pip install -e .`; without one use `specdec search`, which needs no services"
        )
    prefect = (sys.executable, "-m", "prefect", "--no-prompt")
    pool = (*prefect, "work-pool", "create", POOL, "--type", "process", "--overwrite")
    return [pool, (*prefect, "deploy", "--all")]


def _prefect_spec(settings: Settings, ports: Ports) -> ServiceSpec:
    url = service_url(settings, ports.prefect)
    command = (sys.executable, "-m", "prefect", "server", "start")
    options = ("--host", settings.host, "--port", str(ports.prefect))
    return ServiceSpec(
        "prefect",
        "Prefect server",
        (*command, *options),
        lambda: is_answering(f"{url}/api/health"),
        address=url,
    )


def _mlflow_spec(settings: Settings, ports: Ports) -> ServiceSpec:
    url = service_url(settings, ports.mlflow)
    hosts = dict.fromkeys(("localhost:*", "127.0.0.1:*", f"{settings.host}:*"))
    options = {
        "--host": settings.host,
        "--port": str(ports.mlflow),
        "--workers": "1",
        "--artifacts-destination": str(settings.home_dir / "mlartifacts"),
        "--allowed-hosts": ",".join(hosts),
    }
    return ServiceSpec(
        "mlflow",
        "MLflow server",
        (sys.executable, "-m", "mlflow", "server", *(t for pair in options.items() for t in pair)),
        lambda: is_answering(f"{url}/health"),
        # The address may hold a password: not on the command line, which everybody can list.
        environment={
            "MLFLOW_BACKEND_STORE_URI": settings.resolved_mlflow_url,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        },
        address=url,
    )


def _api_spec(settings: Settings, ports: Ports) -> ServiceSpec:
    url = service_url(settings, ports.api)
    command = (sys.executable, "-m", "uvicorn", "--factory", API_FACTORY)
    options = ("--host", settings.host, "--port", str(ports.api), "--no-access-log")
    return ServiceSpec(
        "api",
        "REST API and dashboard",
        (*command, *options),
        lambda: is_answering(f"{url}/api/v1/health"),
        address=url,
    )


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _free_port(host: str, taken: set[int]) -> int:
    while True:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            return port
