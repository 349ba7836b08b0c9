"""State, identity of processes, ports and environment of the local services."""

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flows.services import control, plan
from flows.services.processes import (
    INSTANCE_VARIABLE,
    ProcessIdentity,
    end_processes,
    instance_processes,
    session_processes,
)
from flows.services.reaper import reap
from flows.services.state import (
    ServiceState,
    SupervisorState,
    load_state,
    remove_state,
    save_state,
    supervisor_lock,
)
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from tests.ports import free_ports


def make_state(process: ProcessIdentity) -> SupervisorState:
    return SupervisorState(
        instance="0" * 32,
        process=process,
        phase="ready",
        prefect_api_url="http://127.0.0.1:4299/api",
        mlflow_url="http://127.0.0.1:5099",
        api_url="http://127.0.0.1:8099",
        services=(ServiceState(name="api", title="REST API", log="api.log"),),
    )


def this_process() -> ProcessIdentity:
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    return identity


def test_state_survives_a_round_trip(tmp_path: Path) -> None:
    state = make_state(this_process())
    assert load_state(tmp_path) is None
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    remove_state(tmp_path)
    assert load_state(tmp_path) is None


def test_damaged_state_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"instance": 1}')
    with pytest.raises(ConfigError, match=r"state\.json is not readable by this version"):
        load_state(tmp_path)


def test_only_one_supervisor_holds_the_lock(tmp_path: Path) -> None:
    with supervisor_lock(tmp_path) as first, supervisor_lock(tmp_path) as second:
        assert (first, second) == (True, False)
    with supervisor_lock(tmp_path) as again:
        assert again


def test_a_number_given_away_is_another_process() -> None:
    mine = this_process()
    assert mine.is_alive
    assert not mine.model_copy(update={"started": mine.started - 60}).is_alive


def test_only_processes_of_the_start_are_found_and_ended() -> None:
    instance = secrets.token_hex(16)
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours = subprocess.Popen(
        sleep, env={**os.environ, INSTANCE_VARIABLE: instance}, start_new_session=True
    )
    other = subprocess.Popen(sleep)
    try:
        found = instance_processes(instance)
        assert [process.pid for process in found] == [ours.pid]
        assert [process.pid for process in session_processes(instance, ours.pid)] == [ours.pid]
        assert session_processes(instance, other.pid) == []
        assert end_processes(found, grace_s=5.0) == [ours.pid]
        assert instance_processes(instance) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        ours.wait()


def test_process_that_ignores_the_request_is_forced() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(60)"
    )
    instance = secrets.token_hex(16)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, INSTANCE_VARIABLE: instance},
        stdout=subprocess.PIPE,
    ) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        assert end_processes(instance_processes(instance), grace_s=0.2) == [deaf.pid]
    assert instance_processes(instance) == []


def test_free_default_ports_are_taken_as_they_are() -> None:
    wanted = free_ports(3)
    settings = Settings(prefect_port=wanted[0], mlflow_port=wanted[1], api_port=wanted[2])
    ports, notes = plan.choose_ports(settings)
    assert [ports.prefect, ports.mlflow, ports.api] == wanted
    assert notes == ()


def test_taken_default_port_is_replaced_and_said() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        settings = Settings.model_construct(
            _fields_set=set(), **{**Settings().model_dump(), "api_port": number}
        )
        ports, notes = plan.choose_ports(settings)
    assert ports.api != number
    assert f"port {number} is taken by another program: the REST API uses {ports.api}" in notes


def test_taken_port_that_the_user_chose_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"port {number} for the REST API \(SPECDEC_API_PORT"
        ):
            plan.choose_ports(Settings(api_port=number))


def test_children_get_absolute_folders_and_our_servers(tmp_path: Path) -> None:
    settings = Settings(home=Path("here"), cache=tmp_path / "cache", data=tmp_path)
    ports = plan.Ports(prefect=1, mlflow=2, api=3)
    environment = plan.child_environment(settings, ports, "f" * 32)
    assert environment["SPECDEC_HOME"] == str(Path.cwd() / "here")
    assert environment["SPECDEC_DATA"] == str(tmp_path)
    assert environment["PREFECT_API_URL"] == "http://127.0.0.1:1/api"
    assert environment["PREFECT_HOME"] == str(Path.cwd() / "here" / "prefect")
    assert environment["SPECDEC_MLFLOW_URL"] == "http://127.0.0.1:2"
    assert environment["DO_NOT_TRACK"] == "1"
    assert environment["PWD"] == str(plan.PROJECT_ROOT)


def test_a_running_mlflow_is_used_instead_of_our_own() -> None:
    settings = Settings(mlflow_url="https://mlflow.example")
    ports = plan.Ports(prefect=1, mlflow=2, api=3)
    assert [spec.name for spec in plan.server_specs(settings, ports)] == ["prefect", "api"]
    assert plan.tracking_url(settings, ports) == "https://mlflow.example"


def test_database_password_is_not_on_a_command_line() -> None:
    settings = Settings(mlflow_url="postgresql+psycopg://user:secret@host/mlflow")
    specs = plan.server_specs(settings, plan.Ports(prefect=1, mlflow=2, api=3))
    assert not any("secret" in part for spec in specs for part in spec.command)


def test_export_lines_are_safe_to_evaluate() -> None:
    lines = control.export_lines({"A": "http://x/api", "B": "a b'c"})
    assert lines.splitlines() == ["export A=http://x/api", "export B='a b'\"'\"'c'"]


def test_status_reports_a_dead_supervisor(tmp_path: Path) -> None:
    gone = this_process().model_copy(update={"started": 1.0})
    save_state(tmp_path, make_state(gone))
    report = control.status(Settings(home=tmp_path))
    assert (report.is_running, report.phase, report.environment) == (False, "failed", {})
    assert "the supervisor died: `specdec up` cleans up" in report.message
    assert not report.services[0].is_alive


class ScriptedPrefect:
    """Prefect with two unfinished runs and one missed scheduled run."""

    def __init__(self) -> None:
        self.set: list[tuple[str, str, bool]] = []

    def unfinished_runs(self) -> list[dict[str, str]]:
        return [
            {"id": "dead", "name": "a", "state_type": "RUNNING"},
            {"id": "cancelled", "name": "b", "state_type": "CANCELLING"},
            {"id": "alive", "name": "c", "state_type": "RUNNING"},
        ]

    def missed_runs(self) -> list[dict[str, str]]:
        return [{"id": "late", "name": "d", "expected_start_time": "2026-01-01T02:00:00Z"}]

    def set_state(self, run_id: str, kind: str, _message: str, *, force: bool) -> None:
        self.set.append((run_id, kind, force))


def test_runs_without_a_process_get_an_end() -> None:
    api = ScriptedPrefect()
    said: list[str] = []
    assert reap(api, {"alive"}, said.append) == 3  # type: ignore[arg-type] - scripted stand-in
    assert api.set == [
        ("dead", "CRASHED", True),
        ("cancelled", "CANCELLED", True),
        ("late", "CANCELLED", True),
    ]
    assert "a had no process any more and is now Crashed" in said[0]
