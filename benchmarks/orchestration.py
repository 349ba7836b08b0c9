"""The same evaluations in this process and as a search has them done, in turns.

Orchestrated means: through the dispatcher, a Ray worker, the SQL store, an Optuna trial and the
MLflow server, while all services run. Not in it are the flow's own requests to the Prefect server,
a progress update every two seconds at most.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import RESULTS, Timed, alternate, ratio, write
from db.store import Store
from specdec_core.config.domains import search_config
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.evaluation import evaluate
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target
from specdec_core.search.outcome import Score
from specdec_core.search.space import space_hash
from specdec_core.search.study import StudyLedger
from specdec_core.skip import SkipConfig
from tasks.answers import Answer
from tasks.dispatch import Dispatcher
from tasks.evaluator import ModelEvaluatorFactory
from tasks.jobs import JobFailure
from tasks.mirrored import ChildRun, run_parameters
from tasks.plan import Plan, plan_search
from tasks.pool import pool_factory
from tasks.run_rows import start_run
from tasks.sinks import Tracker, open_tracker

_DOMAIN = "translation"
_NUM_PAIRS = 13
_SPECDEC = (sys.executable, "-m", "flows.cli")


def run() -> None:
    """Measure and store the ratio of times of both ways, and the seconds a search starts with."""
    with _services():
        settings = Settings()
        plan = plan_search(search_config(_DOMAIN), settings)
        bare_start_s = _bare_start()
        target = _load(plan, settings)
        with _Search(plan, settings) as search:
            # The first answer holds the start of Ray, of the worker, and the model's way there.
            first_s, first = search.answer(_request(plan, "start", 0))
            figures = _compare(plan, target, search)
    start_s = first_s - first.seconds
    write(
        "orchestration",
        {
            **figures,
            "start_s": start_s,
            "bare_start_s": bare_start_s,
            "start_share_of_search_run": _share_of_search(start_s - bare_start_s),
        },
    )


def _compare(plan: Plan, target: Target, search: _Search) -> dict[str, Any]:
    def orchestrated(index: int) -> Timed:
        return Timed(1, search.answer(_request(plan, "orchestrated", index))[0])

    def bare(index: int) -> Timed:
        start = time.monotonic()
        evaluate(_request(plan, "bare", index), target, plan.workload.suite)
        return Timed(1, time.monotonic() - start)

    method, baseline = alternate(bare, orchestrated, _NUM_PAIRS)
    found = ratio(method, baseline)
    return {
        "time_ratio": {name: found[name] for name in ("estimate", "low", "high", "confidence")},
        "num_pairs": found["num_samples"],
        "bare_s": [timed.seconds for timed in method],
        "orchestrated_s": [timed.seconds for timed in baseline],
        "waiting_s": search.waiting_s[-len(baseline) :],
    }


def _request(plan: Plan, way: str, index: int) -> EvaluationRequest:
    """Return the selection request of the unit whose turn it is, under a name of its own."""
    skip = SkipConfig.parse(str(plan.units[index % len(plan.units)]))
    return plan.request(skip).model_copy(update={"repetition": f"{way}/{index}"})


class _Search(contextlib.ExitStack):
    """What a search keeps open: store, study, tracker and workers."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        super().__init__()
        store = self.enter_context(Store.open(settings.resolved_database_url))
        plan.workload.register(store)
        row = start_run(store, "benchmark", "orchestration", plan.config, settings, None)
        self.waiting_s: list[float] = []
        self._run_id = row.id
        self._ledger = StudyLedger.open(
            settings.resolved_optuna_url,
            plan.study,
            units=plan.units,
            space_hash=space_hash(plan.units),
            lock_path=settings.home_dir / "locks" / "orchestration",
        )
        self.callback(self._ledger.close)
        self._tracker: Tracker = open_tracker(settings)
        self._tracker.start(row, run_parameters(row))
        self.callback(self._tracker.close, 20.0)
        start_pool = pool_factory(settings, ModelEvaluatorFactory(settings))
        self._dispatcher = self.enter_context(
            contextlib.closing(Dispatcher(store, start_pool, row.id))
        )

    def answer(self, request: EvaluationRequest) -> tuple[float, Answer]:
        """Return wall seconds and the answer; the search's own ledger and tracker are told."""
        start = time.monotonic()
        skip = SkipConfig.parse(request.skip)
        self._dispatcher.submit([("selection", request)], 1)
        self._ledger.start(skip, request.key, 1)
        answers: list[Answer] = []
        while not answers:
            answers = self._dispatcher.wait()
        [answer] = answers
        summary = answer.result
        if isinstance(summary, JobFailure):
            raise RuntimeError(f"{request.skip}: {summary.message}")
        score = Score(summary.acceptance_length, summary.metric)
        self._ledger.finish(request.key, score, answer.seconds)
        child = ChildRun.of(request, summary, level=1, seconds=answer.seconds, dense=summary)
        self._tracker.child(self._run_id, child)
        wall_s = time.monotonic() - start
        self.waiting_s.append(wall_s - answer.seconds)
        return wall_s, answer


@contextlib.contextmanager
def _services() -> Iterator[None]:
    """All services, and an environment that leads to them, in a state folder of their own."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="specdec-bench-") as home:
        os.environ |= {"SPECDEC_HOME": home, "SPECDEC_DATA": "builtin"}
        try:
            subprocess.run([*_SPECDEC, "up"], check=True)
            told = subprocess.run([*_SPECDEC, "env", "--json"], check=True, stdout=subprocess.PIPE)
            os.environ |= json.loads(told.stdout)
            yield
        finally:
            subprocess.run([*_SPECDEC, "down"], check=False)
            os.environ.clear()
            os.environ |= before


def _load(plan: Plan, settings: Settings) -> Target:
    torch.set_num_threads(settings.threads)
    info = plan.workload.target
    model = resolve_model(info.reference, settings.cache_dir)
    return load_target(model, dtype=info.dtype, device=info.device)


def _bare_start() -> float:
    """Return seconds of a process that loads the same model and suite, libraries included."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "benchmarks.orchestration"], check=True)
    return time.monotonic() - start


def _share_of_search(seconds: float) -> float | None:
    """Return `seconds` as a share of the search run of `benchmarks.search`, if it was measured."""
    path: Path = RESULTS / "search.json"
    if not path.exists():
        return None
    return seconds / float(json.loads(path.read_text())["figures"]["search_run_s"])


if __name__ == "__main__":
    _settings = Settings()
    _load(plan_search(search_config(_DOMAIN), _settings), _settings)
