"""Starting and following a flow run, against a scripted Prefect."""

import socket
import threading
from typing import Any

import pytest

from flows.commands import flow as command
from flows.services.http import RequestRefusedError
from flows.services.prefect_api import PrefectApi
from specdec_core.errors import ConfigError, SpecDecError


class ScriptedApi:
    """A Prefect whose one run goes through given states; a log line appears with each."""

    url = "http://127.0.0.1:1/api"

    def __init__(self, states: list[tuple[str, str]], refuses: str = "") -> None:
        self._states = iter(states)
        self._lines: list[dict[str, Any]] = []
        self._refuses = refuses
        self.started: list[dict[str, Any]] = []

    def deployment(self, name: str) -> dict[str, Any]:
        if name != "tss-search/translation":
            raise RequestRefusedError(name, 404, "Deployment not found")
        properties = {"domain": {"type": "string"}, "beam": {"type": "integer"}}
        return {"id": "d1", "parameter_openapi_schema": {"properties": properties}}

    def deployment_names(self) -> list[str]:
        return ["tss-search/qa", "tss-search/translation"]

    def start_run(self, _deployment_id: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if self._refuses:
            raise RequestRefusedError("create_flow_run", 409, self._refuses)
        self.started.append(parameters)
        return {"id": "r1", "name": "translation"}

    def run(self, _run_id: str) -> dict[str, Any]:
        kind, name = next(self._states)
        if kind == "DOWN":
            raise ConnectionRefusedError("refused")
        self.log(f"in {name}")
        return {"state": {"type": kind, "name": name, "message": "done"}}

    def log(self, message: str) -> None:
        self._lines.append({"timestamp": "2026-01-01T02:03:04.5Z", "message": message})

    def logs(self, _run_id: str, offset: int) -> list[dict[str, Any]]:
        return self._lines[offset:]

    def artifacts(self, _run_id: str, _kind: str) -> list[dict[str, Any]]:
        return [{"data": 40.0, "description": "level: 2 of 5"}]

    def online_workers(self) -> list[str]:
        return []


class Display:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown: list[tuple[float, str]] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def show(self, percent: float, text: str) -> None:
        self.shown.append((percent, text))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_POLL_S", 0.0)
    monkeypatch.setattr(command, "_WAIT_HINT_S", -1.0)


def test_run_is_followed_to_its_end_with_every_log_line_once() -> None:
    states = [("SCHEDULED", "Late"), ("RUNNING", "Running"), ("RUNNING", "Running")]
    api = ScriptedApi([*states, ("COMPLETED", "Completed")])
    display = Display()
    run = command.follow(api, "r1", display)  # type: ignore[arg-type] - scripted stand-ins
    assert run["state"]["type"] == "COMPLETED"
    assert display.lines == [
        "02:03:04 in Late",
        "state: Late",
        "no worker serves the pool specdec: `specdec status` shows why",
        "02:03:04 in Running",
        "state: Running",
        "02:03:04 in Running",
        "02:03:04 in Completed",
        "state: Completed",
    ]
    assert display.shown[0] == (40.0, "level: 2 of 5")


def test_of_a_logged_exception_only_its_text_is_shown() -> None:
    display = Display()
    api = ScriptedApi([("FAILED", "Failed")])
    trace = "task failed: ConfigError('no')\nTraceback (most recent call last):\n  File x"
    api.log(trace)
    command.follow(api, "r1", display)  # type: ignore[arg-type] - scripted stand-ins
    assert display.lines[0] == "02:03:04 task failed: ConfigError('no')"


def test_server_that_goes_away_is_named() -> None:
    api = ScriptedApi([("RUNNING", "Running"), ("DOWN", "")])
    with pytest.raises(SpecDecError, match=r"http://127\.0\.0\.1:1/api stopped answering"):
        command.follow(api, "r1", Display())  # type: ignore[arg-type] - scripted stand-ins


def test_unknown_deployment_lists_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="there are: tss-search/qa, tss-search/translation"):
        command.start(ScriptedApi([]), "tss-search/qq", {})  # type: ignore[arg-type] - scripted


def test_something_that_is_not_a_prefect_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=_answer_once, args=(server,))
        thread.start()
        api = PrefectApi(f"http://127.0.0.1:{port}/api", "specdec")
        with pytest.raises(SpecDecError, match=f"http://127.0.0.1:{port}/api does not answer"):
            command.start(api, "tss-search/translation", {})
        thread.join()


def _answer_once(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(b"what do you want?\r\n")


def test_unknown_parameter_lists_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="takes no parameter 'width': choose from domain, beam"):
        command.start(ScriptedApi([]), "tss-search/translation", {"width": 1})  # type: ignore[arg-type] - scripted


def test_refused_value_is_shown_in_the_servers_words() -> None:
    api = ScriptedApi([], refuses="'x' is not of type 'integer'")
    with pytest.raises(ConfigError, match="'x' is not of type 'integer'"):
        command.start(api, "tss-search/translation", {"beam": "x"})  # type: ignore[arg-type] - scripted


def test_parameters_reach_the_deployment() -> None:
    api = ScriptedApi([])
    command.start(api, "tss-search/translation", {"beam": 3})  # type: ignore[arg-type] - scripted
    assert api.started == [{"beam": 3}]
