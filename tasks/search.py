"""The search driver: from a configuration to a stored report and an active profile.

The driver owns every write: results go to the store first, then to the Optuna study and the
tracker. What the store has is never evaluated again, so that a killed search continues where it
was and a second one answers at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator

from db.store import Store
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.search.space import space_hash
from specdec_core.search.study import StudyLedger
from tasks.background_ledger import BackgroundLedger
from tasks.compose import Evidence, compose_report
from tasks.dispatch import Dispatcher
from tasks.driver import SearchDriver
from tasks.jobs import StopCheck
from tasks.mirrored import report_metrics
from tasks.plan import Plan, check_bound, plan_search
from tasks.pool import PoolFactory
from tasks.prepare import Preparer, prepare
from tasks.report import OnProgress, SearchReport, StepTimeSource
from tasks.run_files import WriteFiles, leave_files, no_files
from tasks.run_rows import start_run
from tasks.runtime import LogLine, run_files, run_log
from tasks.sinks import NullTracker, Tracker, mirrored_run
from tasks.step_time import step_times

logger = logging.getLogger(__name__)

KIND = "tss-search"


def run_search(
    config: SearchConfig,
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
) -> SearchReport:
    """Search, validate on held-out items, publish a profile, and return the stored report.

    Args:
        config: The search.
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
    plan = plan_search(config, settings, prepare_workload)
    check_bound(plan)
    plan.workload.register(store)
    if plan.control is not None:
        plan.control.workload.register(store)
    timed = step_times(
        plan,
        settings,
        store,
        start_pool,
        log=log,
        should_stop=should_stop,
        prepare_workload=prepare_workload,
    )
    run = start_run(store, KIND, config.domain, config, settings, flow_run_id)
    tracker = tracker or NullTracker()
    if plan.workload.target.license_note:
        log(plan.workload.target.license_note)
    dispatcher = Dispatcher(
        store, start_pool, run.id, should_stop=should_stop, retries_failed=retries_failed
    )
    with (
        mirrored_run(store, run, tracker, run_files(settings, run.id)) as metrics,
        contextlib.closing(dispatcher),
        run_log(settings, run.id) as log_file,
        open_study(plan, settings) as ledger,
    ):
        logger.info("run %s: at most %d configurations", run.id, plan.max_configurations)
        driver = SearchDriver(plan, dispatcher, ledger, tracker, run.id, log, progress)
        driver.step_model = timed.model if timed else None
        report = _searched(store, driver, str(log_file), timed.source if timed else None)
        summary = report.model_dump(mode="json")
        run = store.runs.update(run.id, status="completed", summary=summary, error=None)
        leave_files(write_files, store, run, settings)
        metrics |= report_metrics(summary)
    log(report.headline)
    return report


def _searched(
    store: Store, driver: SearchDriver, log_file: str, source: StepTimeSource | None
) -> SearchReport:
    started = time.monotonic()
    outcome = driver.search()
    driver.check_control(outcome)
    heldout = driver.validate(outcome)
    evidence = Evidence(
        plan=driver.plan,
        run_id=driver.run_id,
        outcome=outcome,
        keys=driver.keys,
        heldout=heldout,
        study=driver.ledger.name,
        log_file=log_file,
        costs=driver.costs(time.monotonic() - started),
        loss_keys=driver.loss_keys,
        step_times=source,
    )
    return compose_report(store, evidence)


@contextlib.contextmanager
def open_study(plan: Plan, settings: Settings) -> Iterator[BackgroundLedger]:
    """The study of a search, closed whatever happens."""
    name = plan.study
    lock_name = hashlib.sha256(name.encode()).hexdigest()[:24]
    opened = StudyLedger.open(
        settings.resolved_optuna_url,
        name,
        units=plan.units,
        space_hash=space_hash(plan.units),
        lock_path=settings.home_dir / "locks" / f"study-{lock_name}",
        attributes={
            "domain": plan.config.domain,
            "target": plan.workload.target.reference,
            "drafter": plan.config.drafter,
            "tolerances": [plan.config.epsilon_acceptance, plan.config.epsilon_metric],
            "metric_names": ["acceptance_length", plan.metric_name],
        },
    )
    with contextlib.closing(BackgroundLedger(opened)) as ledger:
        yield ledger
