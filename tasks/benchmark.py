"""The benchmark driver: methods by domains at batch 1, paired with autoregressive decoding."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from db.cells import BenchmarkCell, LawTest
from db.store import Store
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.records import SampleResult
from tasks.answers import Answer
from tasks.benchmark_report import BenchmarkReport, MethodOverall, notes_on, overall_of
from tasks.cells import CellPlan, done_cell, failed_cell, measured_of
from tasks.certify import differing_items
from tasks.dispatch import Dispatcher
from tasks.figures import Measured
from tasks.grid import Grid, Row, alternating, make_grid
from tasks.jobs import JobFailure, StopCheck
from tasks.laws import law_tests
from tasks.mirrored import ChildRun, report_metrics
from tasks.plots import plot_report
from tasks.pool import PoolFactory
from tasks.prepare import Preparer, prepare
from tasks.regression import compare_with_baseline
from tasks.report import OnProgress, Progress
from tasks.run_rows import start_run
from tasks.runtime import LogLine, run_files, run_log
from tasks.sinks import NullTracker, Tracker, mirrored_run

logger = logging.getLogger(__name__)

KIND = "benchmark"


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

    Each repeat goes through all methods of a row, every second one backwards, on one worker,
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
    grid = make_grid(config, settings, prepare_workload)
    for row in grid.rows:
        row[0].workload.register(store)
    name = config.session or config.preset or "-".join(config.domains)[:80]
    run = start_run(store, kind, name, config, settings, flow_run_id)
    tracker = tracker or NullTracker()
    dispatcher = Dispatcher(store, start_pool, run.id, should_stop=should_stop, retries_failed=True)
    with (
        mirrored_run(store, run, tracker, run_files(settings, run.id)) as metrics,
        contextlib.closing(dispatcher),
        run_log(settings, run.id),
    ):
        laws = law_tests(config, log, should_stop) if config.verify else {}
        driver = _Driver(store, dispatcher, log, laws)
        driver.measure(grid, run.id, tracker, progress)
        report = _report(config, run.id, grid, driver)
        plots = plot_report(report, run_files(settings, run.id))
        report = report.model_copy(update={"plots": tuple(str(path) for path in plots)})
        summary = report.model_dump(mode="json", exclude={"cells": {"__all__": {"samples"}}})
        store.runs.update(run.id, status="completed", summary=summary, error=None)
        metrics |= report_metrics(summary)
    for regression in report.regressions:
        log(regression.text)
    return report


def _report(config: BenchmarkConfig, run_id: str, grid: Grid, driver: _Driver) -> BenchmarkReport:
    cells = tuple(driver.cells)
    found = compare_with_baseline(driver.store, config, run_id, cells)
    return BenchmarkReport(
        run_id=run_id,
        config=config,
        cells=cells,
        overall=driver.overall(),
        regressions=found.regressions,
        baseline_run_id=found.baseline_run_id,
        notes=(*grid.notes, *notes_on(cells), *found.notes),
        num_evaluated=driver.dispatcher.answers.num_evaluated,
        num_memoised=driver.dispatcher.answers.num_memoised,
    )


@dataclass(slots=True)
class _Driver:
    store: Store
    dispatcher: Dispatcher
    log: LogLine
    laws: Mapping[str, LawTest]
    failures: dict[str, JobFailure] = field(default_factory=dict)
    cells: list[BenchmarkCell] = field(default_factory=list)
    measured: dict[str, list[tuple[BenchmarkCell, Measured]]] = field(default_factory=dict)

    def measure(self, grid: Grid, run_id: str, tracker: Tracker, progress: OnProgress) -> None:
        """Measure row by row and store every cell."""
        total = sum(len(cell.requests) for row in grid.rows for cell in row)
        num_done = 0
        for row in grid.rows:
            for _ in self._answers("cell", alternating(row)):
                num_done += 1
                text = row[0].label
                progress(Progress(stage="cells", done=num_done, total=total, text=text))
            gaps = self._gaps(row)
            for cell in row:
                made = self._cell(cell, row[0], run_id, gaps)
                self.store.benchmarks.put(made)
                self.cells.append(made)
                tracker.child(run_id, ChildRun.of_cell(made))

    def overall(self) -> tuple[MethodOverall, ...]:
        """Return every method over the rows that did not fail."""
        found = (
            overall_of([cell for cell, _ in pairs], [measured for _, measured in pairs])
            for pairs in self.measured.values()
        )
        return tuple(each for each in found if each is not None)

    def _answers(self, role: str, requests: list[EvaluationRequest]) -> Iterator[Answer]:
        """Have requests answered; yield each answer once its failure, if any, is noted."""
        self.dispatcher.submit([(role, request) for request in requests])
        while not self.dispatcher.is_idle:
            for answer in self.dispatcher.wait():
                if isinstance(answer.result, JobFailure):
                    self.failures[answer.request.key] = answer.result
                yield answer

    def _gaps(self, row: Row) -> dict[str, SampleResult]:
        """Autoregressive outputs with logit gaps, of the items that a method answered otherwise."""
        plain, *others = (cell.requests[0] for cell in row)
        item_ids = differing_items(self.store, plain, others)
        if not item_ids:
            return {}
        untimed = {"item_ids": item_ids, "record_gaps": True, "is_timed": False, "repetition": ""}
        request = plain.model_copy(update=untimed)
        self.log(f"{row[0].label}: {len(item_ids)} outputs differ, looking at their logit gaps")
        list(self._answers("gaps", [request]))
        return {sample.item_id: sample for sample in self.store.evaluations.samples(request.key)}

    def _cell(
        self, cell: CellPlan, plain: CellPlan, run_id: str, gaps: Mapping[str, SampleResult]
    ) -> BenchmarkCell:
        requests = (*cell.requests, *plain.requests)
        failed = next((self.failures[r.key] for r in requests if r.key in self.failures), None)
        if failed is not None:
            made = failed_cell(run_id, cell, plain, failed)
            self.log(f"{made.domain}, {made.drafter}: {made.error}")
            return made
        measured = measured_of(self.store, cell, plain)
        law = self.laws.get(cell.method)
        made = done_cell(self.store, run_id, cell, plain, measured, gaps=gaps, law=law)
        self.measured.setdefault(cell.method, []).append((made, measured))
        assert made.figures is not None
        self.log(f"{made.domain}, {made.drafter}: {made.figures.tokens_per_s:.1f} tokens/s")
        return made
