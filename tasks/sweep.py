"""Several searches under one evaluator: strategies side by side, or tolerances in turn.

All share workers, memo and one held-out comparison, in which every answer is timed in turns with
the dense target. No profile is published: that is what a search is for.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass

from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.search import CompareConfig, SearchConfig, SensitivityConfig
from specdec_core.config.settings import Settings
from tasks.background_ledger import BackgroundLedger
from tasks.dispatch import Dispatcher
from tasks.driver import SearchDriver, measure_heldout
from tasks.heldout import HeldoutPlan, plan_heldout
from tasks.jobs import StopCheck
from tasks.mirrored import report_metrics
from tasks.plan import Plan, check_bound, plan_search
from tasks.pool import PoolFactory
from tasks.prepare import Preparer, prepare
from tasks.report import OnProgress, SearchCosts
from tasks.run_files import WriteFiles, leave_files, no_files
from tasks.run_rows import start_run
from tasks.runtime import LogLine, run_files, run_log
from tasks.search import open_study
from tasks.sinks import NullTracker, Tracker, mirrored_run
from tasks.step_time import StepTimes, step_times
from tasks.sweep_compose import Searched, compose_sweep
from tasks.sweep_report import SweepKind, SweepReport
from tasks.together import run_together

logger = logging.getLogger(__name__)

COMPARE: SweepKind = "tss-compare"
SENSITIVITY: SweepKind = "tss-sensitivity"
BASE = "base"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a sweep searches: named configurations that differ in strategy or tolerance alone."""

    kind: SweepKind
    config: CompareConfig | SensitivityConfig
    plans: tuple[tuple[str, Plan], ...]


def plan_sweep(
    config: CompareConfig | SensitivityConfig,
    settings: Settings,
    prepare_workload: Preparer = prepare,
) -> Sweep:
    """Resolve and check every search of a sweep before any model is loaded.

    Raises:
        ConfigError: if something cannot be used.
    """
    base = plan_search(
        config.search.model_copy(update={"strategy": "tss"}), settings, prepare_workload
    )

    def planned(search: SearchConfig) -> Plan:
        return plan_search(search, settings, lambda *_: base.workload)

    searches: list[tuple[str, SearchConfig]]
    if isinstance(config, SensitivityConfig):
        kind = SENSITIVITY
        searches = [(tolerance_name(t), _at(config.search, t)) for t in config.tolerances]
        searches.insert(0, (BASE, config.search))
    else:
        kind = COMPARE
        searches = [
            (s, config.search.model_copy(update={"strategy": s})) for s in config.strategies
        ]
    plans = tuple((name, planned(one)) for name, one in searches)
    check_bound(*(plan for _, plan in plans))
    return Sweep(kind, config, plans)


def tolerance_name(tolerance: float) -> str:
    """Return a tolerance as tables name it, such as ``-5%``."""
    return f"{100 * tolerance:+g}%"


def _at(search: SearchConfig, tolerance: float) -> SearchConfig:
    """Return the search with one tolerance for both."""
    both = {"tolerance": tolerance, "tolerance_acceptance": None, "tolerance_metric": None}
    return search.model_copy(update=both)


def run_sweep(
    config: CompareConfig | SensitivityConfig,
    settings: Settings,
    store: Store,
    start_pool: PoolFactory,
    *,
    tracker: Tracker | None = None,
    log: LogLine = logger.info,
    progress: OnProgress = lambda _progress: None,
    should_stop: StopCheck = lambda: False,
    flow_run_id: str | None = None,
    retries_failed: bool = False,
    prepare_workload: Preparer = prepare,
    write_files: WriteFiles = no_files,
) -> SweepReport:
    """Search every variant, compare the answers on held-out items, store and return the report.

    What was evaluated before, by whatever strategy or run, is answered from the store; a sweep
    that was killed continues where it was.

    Args:
        config: The sweep.
        settings: Where things run and are kept.
        store: The open store.
        start_pool: Starts workers; called only if something has to be evaluated.
        tracker: Mirror of results, best effort; None mirrors nothing.
        log: Takes lines for the user.
        progress: Takes a record after every answer.
        should_stop: Once true, workers are stopped and the run ends as cancelled.
        flow_run_id: The orchestrator's run; a retry of it continues the same row.
        retries_failed: Whether configurations left out in earlier runs are tried again.
        prepare_workload: Resolves target and suite.
        write_files: Writes report and plots of the finished run into its folder.

    Raises:
        ConfigError: if something cannot be used; nothing is stored if found before the start.
        EvaluationFailedError: if the dense target cannot be evaluated.
        SearchCancelledError: if told to stop.
        StoreError: if a database cannot be used.
        WorkerLostError: if no workers can be had.
    """
    sweep = plan_sweep(config, settings, prepare_workload)
    first = sweep.plans[0][1]
    first.workload.register(store)
    timed = None
    for _, plan in sweep.plans:
        timed = timed or step_times(
            plan,
            settings,
            store,
            start_pool,
            log=log,
            should_stop=should_stop,
            prepare_workload=prepare_workload,
        )
    run = start_run(store, sweep.kind, config.search.domain, config, settings, flow_run_id)
    tracker = tracker or NullTracker()
    dispatcher = Dispatcher(
        store, start_pool, run.id, should_stop=should_stop, retries_failed=retries_failed
    )
    with (
        mirrored_run(store, run, tracker, run_files(settings, run.id)) as metrics,
        contextlib.closing(dispatcher),
        run_log(settings, run.id) as log_file,
    ):
        work = _Work(sweep, settings, dispatcher, tracker, run.id, log, progress, timed)
        started = time.monotonic()
        found = work.search_all()
        num_looked_up = dispatcher.answers.num_memoised
        heldout, seconds = work.compare(found)
        num_looked_up = dispatcher.answers.num_memoised - num_looked_up
        costs = SearchCosts(
            num_evaluated=dispatcher.answers.num_evaluated,
            num_memoised=num_looked_up + sum(one.num_memoised for one in found),
            num_failed=dispatcher.answers.num_failed,
            worker_s=seconds + sum(one.driver.worker_s for one in found),
            wall_s=time.monotonic() - started,
            utilisation=dispatcher.utilisation(),
            decoded_tokens=sum(one.driver.decoded_tokens for one in found),
            num_dropped=sum(one.driver.drop_costs.num_dropped for one in found),
            saved_tokens=config.search.max_new_tokens
            * sum(one.driver.drop_costs.items_left_out for one in found),
        )
        report = compose_sweep(
            store,
            kind=sweep.kind,
            config=config,
            searched=found,
            heldout=heldout,
            step_times=timed.source if timed else None,
            run_id=run.id,
            log_file=str(log_file),
            costs=costs,
        )
        summary = report.model_dump(mode="json")
        run = store.runs.update(run.id, status="completed", summary=summary, error=None)
        leave_files(write_files, store, run, settings)
        metrics |= report_metrics(summary)
    log(report.headline)
    return report


@dataclass(frozen=True, slots=True)
class _Work:
    """A sweep in progress."""

    sweep: Sweep
    settings: Settings
    dispatcher: Dispatcher
    tracker: Tracker
    run_id: str
    log: LogLine
    progress: OnProgress
    timed: StepTimes | None

    def search_all(self) -> list[Searched]:
        """Do all searches at once, so that one has work for the workers that another leaves idle.

        What several need counts as evaluated by the first of them, whichever asked first.
        """
        self.log(f"{self.sweep.kind}: {', '.join(name for name, _ in self.sweep.plans)}")
        with contextlib.ExitStack() as stack:
            studies: dict[str, BackgroundLedger] = {}
            for _, plan in self.sweep.plans:  # of equal searches there is one study
                if plan.study not in studies:
                    studies[plan.study] = stack.enter_context(open_study(plan, self.settings))
            mirrored: set[str] = set()
            drivers = {
                name: self._driver(name, plan, studies[plan.study], mirrored)
                for name, plan in self.sweep.plans
            }
            run_together([each.begin() for each in drivers.values()], self.dispatcher)
            outcomes = {name: driver.outcome() for name, driver in drivers.items()}
        counted: set[str] = set()
        found = []
        for name, driver in drivers.items():
            numbers = self._count(driver.needed_keys, counted)
            found.append(Searched(name, driver, outcomes[name], *numbers))
            counted |= driver.needed_keys
        return found

    def _driver(
        self, name: str, plan: Plan, ledger: BackgroundLedger, mirrored: set[str]
    ) -> SearchDriver:
        return SearchDriver(
            plan,
            self.dispatcher,
            ledger,
            self.tracker,
            self.run_id,
            lambda line: self.log(f"{name}: {line}"),
            self.progress,
            step_model=self.timed.model if self.timed else None,
            mirrored=mirrored,
        )

    def _count(self, keys: Set[str], counted: Set[str]) -> tuple[int, int, int]:
        """Return how many were evaluated by this run for one search, stored, and failed."""
        answers = self.dispatcher.answers
        evaluated = len((keys & answers.evaluated) - counted)
        failed = len((keys & answers.failed) - answers.evaluated)
        return evaluated, len(keys) - evaluated - failed, failed

    def compare(self, found: Sequence[Searched]) -> tuple[dict[str, HeldoutPlan], float]:
        """Time every different answer in turns with dense; return plans by skip set, seconds."""
        plan = found[0].driver.plan
        skips = dict.fromkeys(["", *(str(one.outcome.answer.skip) for one in found)])
        plans = {
            skip: plan_heldout(
                plan.workload,
                skip,
                plan.config.drafter,
                plan.split.heldout_ids,
                plan.config.max_new_tokens,
                prefill=plan.config.prefill,
            )
            for skip in skips
        }
        self.log(f"comparing {len(plans) - 1} skip sets with dense on held-out items")
        ordered = interleaved(list(plans.values()))
        return plans, measure_heldout(self.dispatcher, ordered, self.progress)


def interleaved(plans: Sequence[HeldoutPlan]) -> list[tuple[str, EvaluationRequest]]:
    """Return the requests of several plans chunk by chunk, each once, so that drift is shared.

    Every second chunk goes backwards, as in one plan.
    """
    ordered = []
    for number, chunks in enumerate(zip(*(plan.chunks for plan in plans), strict=True)):
        arms = {one.key: (arm, one) for chunk in chunks for arm, one in chunk.items()}
        turn = list(arms.values())
        ordered += turn if number % 2 == 0 else turn[::-1]
    return ordered
