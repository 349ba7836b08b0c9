"""The main job as a user runs it, and the same evaluations without any orchestration."""

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
import torch

from benchmarks.common import write
from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.data.suites import load_suite
from specdec_core.evaluation import evaluate
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import load_target

_ROOT = Path(__file__).parents[1]


def run() -> None:
    """Measure and store wall seconds, memory and the share that orchestration adds."""
    with tempfile.TemporaryDirectory(prefix="specdec-bench-") as home:
        environment = {**os.environ, "SPECDEC_HOME": home, "SPECDEC_DATA": "builtin"}
        with _PeakMemory() as memory:
            try:
                first_s = _timed(environment, "search")
                second_s = _timed(environment, "search")
            finally:
                _timed(environment, "down")
        summary, requests = _stored(home)
        bare_s = _bare(requests)
    write(
        "search",
        {
            "num_evaluations": len(requests),
            "make_search_s": first_s,
            "second_make_search_s": second_s,
            "peak_memory_gb": memory.peak_bytes / 1e9,
            "search_run_s": summary["costs"]["wall_s"],
            "worker_s": summary["costs"]["worker_s"],
            "bare_s": bare_s,
            "orchestration_share_of_search_run": summary["costs"]["wall_s"] / bare_s - 1,
            "orchestration_share_of_make_search": first_s / bare_s - 1,
            "verdict": summary["verdict"],
            "headline": summary["headline"],
        },
    )


def _timed(environment: dict[str, str], target: str) -> float:
    start = time.monotonic()
    subprocess.run(["make", target], env=environment, check=True, cwd=_ROOT)
    return time.monotonic() - start


def _stored(home: str) -> tuple[dict[str, Any], list[EvaluationRequest]]:
    """Return the first run's report and its requests in the order they were asked for."""
    with Store.open(f"sqlite:///{Path(home) / 'specdec.db'}") as store:
        run = store.runs.list(kind="tss-search")[-1]
        rows = store.runs.evaluations(run.id)
    return json.loads(json.dumps(run.summary)), [row.row.request for row in rows]


def _bare(requests: list[EvaluationRequest]) -> float:
    """Return seconds of loading the model and answering the same requests in one process."""
    settings = Settings()
    torch.set_num_threads(settings.threads)
    start = time.monotonic()
    first = requests[0]
    model = resolve_model(first.target, settings.cache_dir)
    target = load_target(model, dtype=first.dtype, device=first.device)
    suite = load_suite(first.domain, first.suite)
    for request in requests:
        evaluate(request, target, suite)
    return time.monotonic() - start


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
