"""The server as a process: its address, and how a program learns that it is ready."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from specdec_core.config.serving import ServeConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from tasks.serving.run import run_server, take_address


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_a_port_in_use_is_said_before_any_model_is_looked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        config = ServeConfig(target="path:/no/such/model", port=port)
        said = rf"cannot listen on 127\.0\.0\.1, port {port} \(Address already in use\)"
        with pytest.raises(ConfigError, match=said):
            run_server(config, Settings(home=tmp_path), lambda _line: None)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1, port 80"):
        take_address("192.0.2.1", 80)


def test_an_address_that_is_taken_refuses_clients_until_it_listens() -> None:
    port = free_port()
    with take_address("127.0.0.1", port), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5.0)


def test_json_says_in_one_line_that_the_server_is_ready(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    options = {
        "target": f"path:{folder}",
        "dtype": "float64",
        "domain": "none",
        "profiles": "none",
        "port": str(port),
    }
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    environment = {**os.environ, "SPECDEC_HOME": str(tmp_path), "SPECDEC_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "serve", *flags, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        assert (ready["event"], ready["address"]) == ("ready", f"http://127.0.0.1:{port}")
        assert (ready["model"], ready["dtype"]) == (f"path:{folder}", "float64")
        assert ready["pid"] == server.pid
        with urllib.request.urlopen(f"{ready['address']}/health", timeout=10.0) as answer:
            assert json.loads(answer.read())["status"] == "ok"
    finally:
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=60.0)
    assert rest == ""
