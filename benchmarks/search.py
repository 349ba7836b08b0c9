"""The main job as a user runs it: wall seconds, memory, and a second run from the store.

What orchestration adds is measured by `benchmarks.orchestration`: one search beside one bare run
would mostly show how much the machine drifts between the two.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import write
from db.store import Store

_ROOT = Path(__file__).parents[1]


def run() -> None:
    """Measure and store wall seconds and memory of two runs in a row."""
    with tempfile.TemporaryDirectory(prefix="specdec-bench-") as home:
        environment = {**os.environ, "SPECDEC_HOME": home, "SPECDEC_DATA": "builtin"}
        with _PeakMemory() as memory:
            try:
                first_s = _timed(environment, "search")
                second_s = _timed(environment, "search")
            finally:
                _timed(environment, "down")
        summary = _stored(home)
    write(
        "search",
        {
            "num_evaluations": summary["costs"]["num_evaluated"],
            "make_search_s": first_s,
            "second_make_search_s": second_s,
            "peak_memory_gb": memory.peak_bytes / 1e9,
            "search_run_s": summary["costs"]["wall_s"],
            "worker_s": summary["costs"]["worker_s"],
            "verdict": summary["verdict"],
            "headline": summary["headline"],
        },
    )


def _timed(environment: dict[str, str], target: str) -> float:
    start = time.monotonic()
    subprocess.run(["make", target], env=environment, check=True, cwd=_ROOT)
    return time.monotonic() - start


def _stored(home: str) -> dict[str, Any]:
    """Return the first run's report."""
    with Store.open(f"sqlite:///{Path(home) / 'specdec.db'}") as store:
        run = store.runs.list(kind="tss-search")[-1]
    return json.loads(json.dumps(run.summary))


class _PeakMemory:
    """The largest drop of the machine's available memory, sampled twice a second."""

    peak_bytes = 0

    def __enter__(self) -> _PeakMemory:
        self._before = psutil.virtual_memory().available
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            used = self._before - psutil.virtual_memory().available
            self.peak_bytes = max(self.peak_bytes, used)
