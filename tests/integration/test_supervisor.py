"""The supervisor over stand-ins: restarts, failures, and nothing left behind."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.services import control
from flows.services.processes import INSTANCE_VARIABLE, end_processes, instance_processes
from flows.services.state import SupervisorState, load_state
from flows.services.supervisor import MAX_RESTARTS
from specdec_core.config.settings import Settings
from tests.ports import free_ports

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("stub_supervisor.py")


class Stub:
    """One supervisor process over a state folder of its own."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings(home=home)
        self.instance = secrets.token_hex(16)
        self.ports = free_ports(2)
        self.output = home.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, api: str = "serve") -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            INSTANCE_VARIABLE: self.instance,
            "SPECDEC_HOME": str(self.settings.home_dir),
            "SPECDEC_PREFECT_PORT": str(self.ports[0]),
            "SPECDEC_API_PORT": str(self.ports[1]),
            "STUB_API": api,
            "PYTHONPATH": str(SCRIPT.parents[2]),
        }
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT)], env=environment, stdout=output, stderr=output
            )
        return self.process

    @property
    def state(self) -> SupervisorState | None:
        return load_state(self.settings.home_dir)

    def wait_for(self, condition: Callable[[SupervisorState], bool], seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not ((state := self.state) is not None and condition(state)):
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.1)

    def pid_of(self, name: str) -> int:
        state = self.state
        assert state is not None
        process = state.service(name).process
        assert process is not None
        return process.pid


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Stub]:
    stub = Stub(tmp_path / "home")
    yield stub
    if stub.process is not None and stub.process.poll() is None:
        stub.process.kill()
        stub.process.wait()
    end_processes(instance_processes(stub.instance), 2.0)


def test_killed_service_is_started_again_although_its_child_held_the_port(stub: Stub) -> None:
    process = stub.start()
    stub.wait_for(lambda state: state.phase == "ready")
    first = stub.pid_of("api")
    os.kill(first, signal.SIGKILL)
    stub.wait_for(lambda s: s.service("api").restarts == 1 and s.service("api").status == "ready")
    assert stub.pid_of("api") != first
    text = stub.output.read_text()
    assert f"api died with exit code -9; starting it again (1 of at most {MAX_RESTARTS})" in text
    process.terminate()
    assert process.wait(timeout=30) == 0
    assert instance_processes(stub.instance) == []
    assert stub.state is None


def test_service_that_keeps_dying_is_given_up_and_said(stub: Stub) -> None:
    stub.start(api="die")
    stub.wait_for(lambda state: state.phase == "degraded", seconds=60)
    state = stub.state
    assert state is not None
    assert state.service("api").status == "failed"
    assert f"api died {MAX_RESTARTS + 1} times" in state.message
    assert "logs/api.log" in state.message
    assert control.status(stub.settings).phase == "degraded"
    assert control.status(stub.settings).is_running


def test_service_that_does_not_start_ends_the_others_and_names_its_log(stub: Stub) -> None:
    process = stub.start(api="never-start")
    assert process.wait(timeout=40) == 1
    state = stub.state
    assert state is not None
    assert state.phase == "failed"
    assert "api ended with exit code 1: see" in state.message
    assert "no such database" in state.message
    assert instance_processes(stub.instance) == []


def test_second_supervisor_of_one_home_gives_way(stub: Stub) -> None:
    stub.start()
    stub.wait_for(lambda state: state.phase == "ready")
    first = stub.process
    second = stub.start()
    assert second.wait(timeout=20) == 1
    assert "are already running" in stub.output.read_text()
    stub.process = first


def test_down_ends_what_a_killed_supervisor_left(stub: Stub) -> None:
    process = stub.start()
    stub.wait_for(lambda state: state.phase == "ready")
    process.kill()
    process.wait()
    assert control.status(stub.settings).phase == "failed"
    assert len(instance_processes(stub.instance)) == 5
    said: list[str] = []
    assert control.down(stub.settings, said.append) == 0
    assert instance_processes(stub.instance) == []
    assert "stopping api" in said
