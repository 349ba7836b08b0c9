"""Requests per second and latency of `resolve`, over SQLite, while a search writes.

The server is the one that `specdec up` starts, eight client processes ask on one connection each,
and another process stores evaluations of sixteen items and publishes profiles.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common import write
from benchmarks.resolve_load import DOMAINS, publish
from db.store import Store
from flows.services.plan import child_environment, choose_ports, server_specs
from specdec_core.config.settings import Settings

NUM_CLIENTS = 8
MEASURED_S = 10.0
_WARM_UP_S = 2.0
_START_S = 6.0  # until every process has imported what it needs
_PAUSE_S = 0.1  # between evaluations; a search on this machine stores about one a second
_QUANTILES = (0.5, 0.9, 0.99, 0.999)


def run() -> None:
    """Measure whole answers and answers to clients that know the last one, and store both."""
    with tempfile.TemporaryDirectory(prefix="specdec-bench-") as home:
        settings = Settings(home=Path(home), database_url=None, api_key=None)
        with Store.open(settings.resolved_database_url) as store:
            for number in range(4 * len(DOMAINS)):
                publish(store, DOMAINS[number % len(DOMAINS)], number)
        with _server(settings) as port:
            _load(settings, port, seconds=_WARM_UP_S)
            figures = {
                "whole_answers": _load(settings, port, seconds=MEASURED_S),
                "with_etag": _load(settings, port, seconds=MEASURED_S, has_tags=True),
            }
    write("resolve", {"num_clients": NUM_CLIENTS, "measured_s": MEASURED_S, **figures})


@contextlib.contextmanager
def _server(settings: Settings) -> Iterator[int]:
    """The REST API as a service, in a state folder of its own."""
    ports, _ = choose_ports(settings)
    [spec] = [each for each in server_specs(settings, ports) if each.name == "api"]
    environment = child_environment(settings, ports, "benchmark")
    environment["SPECDEC_DATABASE_URL"] = settings.resolved_database_url
    environment.pop("SPECDEC_API_KEY", None)
    process = subprocess.Popen(spec.command, env=environment, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + spec.start_timeout_s
        while not spec.is_healthy():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {spec.command}")
            time.sleep(0.1)
        yield ports.api
    finally:
        process.terminate()
        process.wait(20)


def _load(
    settings: Settings, port: int, *, seconds: float, has_tags: bool = False
) -> dict[str, Any]:
    """Run all processes once and return what they saw together."""
    shared = ["--start-at", str(time.time() + _START_S), "--seconds", str(seconds)]
    asking = ["client", "--port", str(port), *shared, *(["--tags"] if has_tags else [])]
    clients = [_start([*asking, "--number", str(number)]) for number in range(NUM_CLIENTS)]
    database = settings.resolved_database_url
    writer = _start(["writer", "--database", database, "--pause", str(_PAUSE_S), *shared])
    answers = [_answer(process) for process in clients]
    written = _answer(writer)
    latencies_s = sorted(one for answer in answers for one in answer["latencies_s"])
    return {
        "requests_per_s": len(latencies_s) / seconds,
        "num_requests": len(latencies_s),
        "num_wrong": sum(answer["num_wrong"] for answer in answers),
        "num_unchanged": sum(answer["num_unchanged"] for answer in answers),
        **{f"p{100 * q:g}_ms": 1000 * _quantile(latencies_s, q) for q in _QUANTILES},
        "max_ms": 1000 * latencies_s[-1],
        "evaluations_written_per_s": written["num_evaluations"] / seconds,
        "profiles_published": written["num_profiles"],
    }


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _start(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.resolve_load", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"a process of the benchmark ended with {process.returncode}")
    answer: dict[str, Any] = json.loads(output)
    return answer
