"""The benchmark driver: methods by domains at batch 1, paired with autoregressive decoding."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from db.schemas import BenchmarkCell
from db.store import Store
from specdec_core.config.base import Record
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.domains import check_domain
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.errors import DataError
from specdec_core.records import SampleResult
from specdec_core.skip import SkipConfig
from tasks.cells import BASELINE_METHOD, cell_of, differing_items
from tasks.dispatch import Answer, Dispatcher
from tasks.jobs import JobFailure, StopCheck
from tasks.mirrored import ChildRun
from tasks.pool import PoolFactory
from tasks.prepare import Preparer, Workload, prepare
from tasks.regression import BaselineComparison, Regression, compare_with_baseline
from tasks.report import OnProgress, Progress
from tasks.run_rows import start_run
from tasks.runtime import LogLine, run_log
from tasks.sinks import NullTracker, Tracker, mirrored_run

logger = logging.getLogger(__name__)

KIND = "benchmark"


class BenchmarkReport(Record):
    """The result of one benchmark run; stored as the summary of its run, without raw timings."""

    run_id: str
    config: BenchmarkConfig
    cells: tuple[BenchmarkCell, ...]
    regressions: tuple[Regression, ...] = ()
    baseline_run_id: str | None = Field(None, description="run that was compared with")
    notes: tuple[str, ...] = ()
    num_evaluated: int
    num_memoised: int


@dataclass(frozen=True, slots=True)
class _Cell:
    """The requests of one method in one domain, one per repeat."""

    workload: Workload
    method: str
    requests: tuple[EvaluationRequest, ...]


def run_benchmark(
    config: BenchmarkConfig,
    settings: Settings,
    store: Store,
    start_pool: PoolFactory,
    *,
    tracker: Tracker | None = None,
    log: LogLine = logger.info,
    progress: OnProgress = lambda _progress: None,
    should_stop: StopCheck = lambda: False,
    flow_run_id: str | None = None,
    kind: str = KIND,
    prepare_workload: Preparer = prepare,
) -> BenchmarkReport:
    """Measure every cell of the grid, compare with a baseline, store and return the report.

    Each repeat goes through all methods of a domain, every second one backwards, on one worker,
    so that a machine that drifts touches them alike. What was measured under the same session
    name is not measured again; what failed is tried again by every run.

    Args:
        config: The grid.
        settings: Where things run and are kept.
        store: The open store.
        start_pool: Starts workers; called only if something has to be measured.
        tracker: Mirror of results, best effort; None mirrors nothing.
        log: Takes lines for the user.
        progress: Takes a record after every measurement.
        should_stop: Once true, workers are stopped and the run ends as cancelled.
        flow_run_id: The orchestrator's run; a retry of it continues the same row.
        kind: Kind of the run, such as ``nightly-benchmark``.
        prepare_workload: Resolves target and suites.

    Raises:
        ConfigError: if something cannot be used; nothing is stored if found before the start.
        SearchCancelledError: if told to stop.
        StoreError: if a database cannot be used.
        WorkerLostError: if no workers can be had.
    """
    grid = _grid(config, settings, prepare_workload)
    for row in grid:
        row[0].workload.register(store)
    name = config.session or "-".join(config.domains)[:80]
    run = start_run(store, kind, name, config, settings, flow_run_id)
    tracker = tracker or NullTracker()
    dispatcher = Dispatcher(store, start_pool, run.id, should_stop=should_stop, retries_failed=True)
    with (
        mirrored_run(store, run, tracker) as metrics,
        contextlib.closing(dispatcher),
        run_log(settings, run.id),
    ):
        cells = _Driver(store, dispatcher, log).measure(grid, run.id, tracker, progress)
        found = compare_with_baseline(store, config, run.id, cells)
        report = _report(config, run.id, cells, found, dispatcher)
        summary = report.model_dump(mode="json", exclude={"cells": {"__all__": {"samples"}}})
        store.runs.update(run.id, status="completed", summary=summary, error=None)
        metrics["num_regressions"] = float(len(report.regressions))
    for regression in report.regressions:
        log(regression.text)
    return report


def _report(
    config: BenchmarkConfig,
    run_id: str,
    cells: tuple[BenchmarkCell, ...],
    found: BaselineComparison,
    dispatcher: Dispatcher,
) -> BenchmarkReport:
    return BenchmarkReport(
        run_id=run_id,
        config=config,
        cells=cells,
        regressions=found.regressions,
        baseline_run_id=found.baseline_run_id,
        notes=found.notes,
        num_evaluated=dispatcher.num_evaluated,
        num_memoised=dispatcher.num_memoised,
    )


@dataclass(slots=True)
class _Driver:
    store: Store
    dispatcher: Dispatcher
    log: LogLine
    failures: dict[str, JobFailure] = field(default_factory=dict)

    def measure(
        self,
        grid: Sequence[Sequence[_Cell]],
        run_id: str,
        tracker: Tracker,
        progress: OnProgress,
    ) -> tuple[BenchmarkCell, ...]:
        """Measure domain by domain; return and store every cell."""
        total = sum(len(cell.requests) for cells in grid for cell in cells)
        num_done, stored = 0, []
        for cells in grid:
            for answer in self._answers("cell", _alternating(cells)):
                num_done += 1
                domain = answer.request.domain
                progress(Progress(stage="cells", done=num_done, total=total, text=domain))
            gaps = self._gaps(cells)
            for cell in cells:
                stored.append(self._store_cell(cell, cells[0], run_id, gaps))
                tracker.child(run_id, ChildRun.of_cell(stored[-1]))
        return tuple(stored)

    def _answers(self, role: str, requests: Sequence[EvaluationRequest]) -> Iterator[Answer]:
        """Have requests answered; yield each answer once its failure, if any, is noted."""
        self.dispatcher.submit([(role, request) for request in requests])
        while not self.dispatcher.is_idle:
            for answer in self.dispatcher.wait():
                if isinstance(answer.result, JobFailure):
                    self.failures[answer.request.key] = answer.result
                yield answer

    def _gaps(self, cells: Sequence[_Cell]) -> dict[str, SampleResult]:
        """Autoregressive outputs with logit gaps, of the items that a method answered otherwise."""
        plain, *others = (cell.requests[0] for cell in cells)
        item_ids = differing_items(self.store, plain, others)
        if not item_ids:
            return {}
        untimed = {"item_ids": item_ids, "record_gaps": True, "is_timed": False, "repetition": ""}
        request = plain.model_copy(update=untimed)
        self.log(f"{plain.domain}: {len(item_ids)} outputs differ, looking at their logit gaps")
        list(self._answers("gaps", [request]))
        return {sample.item_id: sample for sample in self.store.evaluations.samples(request.key)}

    def _store_cell(
        self, cell: _Cell, plain: _Cell, run_id: str, gaps: Mapping[str, SampleResult]
    ) -> BenchmarkCell:
        made = cell_of(
            self.store,
            run_id,
            cell.workload,
            method=cell.method,
            requests=cell.requests,
            baseline=plain.requests,
            failures=self.failures,
            gaps=gaps,
        )
        self.store.benchmarks.put(made)
        figures = made.figures
        speed = f"{figures.tokens_per_s:.1f} tokens/s" if figures else made.error
        self.log(f"{made.domain}, {made.drafter}: {speed}")
        return made


def _grid(
    config: BenchmarkConfig, settings: Settings, prepare_workload: Preparer
) -> list[list[_Cell]]:
    """Return the cells by domain, autoregressive first; everything is checked here."""
    grid = []
    for domain in config.domains:
        check_domain(domain, config.suite)
        workload = prepare_workload(config.target, domain, config.suite, config.dtype, settings)
        SkipConfig.parse(config.skip).validate(workload.target.num_layers)
        ids = sorted(item.id for item in workload.suite.items)[: config.num_items]
        if len(ids) < config.num_items:
            raise DataError(
                f"suite {workload.suite.name!r} has {len(ids)} items, {config.num_items} were "
                "asked for: lower num_items or give a larger suite"
            )
        grid.append(
            [
                _Cell(workload, method, _repeats(config, workload, method, ids))
                for method in (BASELINE_METHOD, *config.methods)
            ]
        )
    return grid


def _repeats(
    config: BenchmarkConfig, workload: Workload, method: str, ids: Sequence[str]
) -> tuple[EvaluationRequest, ...]:
    return tuple(
        workload.request(
            skip=config.skip,
            drafter=method,
            item_ids=ids,
            max_new_tokens=config.max_new_tokens,
            is_timed=True,
            repetition=f"{config.session}/{number}",
        )
        for number in range(config.repeats)
    )


def _alternating(cells: Sequence[_Cell]) -> list[EvaluationRequest]:
    """All requests of a domain, repeat by repeat, every second repeat backwards."""
    ordered = []
    for number in range(len(cells[0].requests)):
        row = [cell.requests[number] for cell in cells]
        ordered += row if number % 2 == 0 else row[::-1]
    return ordered
