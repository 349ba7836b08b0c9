"""Joins settings, store, workers and tracker to the plain-Python drivers of `tasks`.

Flows and the command line call these, so that both do the same work.
"""

from __future__ import annotations

from db.schemas import CalibrationRecord
from db.store import Store
from flows.exports import write_run_files
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.search import CompareConfig, SearchConfig, SensitivityConfig
from specdec_core.config.settings import Settings
from tasks.benchmark import run_benchmark
from tasks.benchmark_report import BenchmarkReport
from tasks.calibration import run_calibration
from tasks.evaluator import ModelEvaluatorFactory
from tasks.jobs import StopCheck
from tasks.pool import PoolFactory, pool_factory
from tasks.report import OnProgress, SearchReport
from tasks.runtime import LogLine
from tasks.search import run_search
from tasks.sinks import open_tracker
from tasks.sweep import run_sweep
from tasks.sweep_report import SweepReport
from tasks.verify_profile import VerifyReport
from tasks.verify_profile import verify_profile as verify_stored


def search(
    config: SearchConfig,
    settings: Settings,
    *,
    log: LogLine,
    progress: OnProgress,
    flow_run_id: str | None = None,
    should_stop: StopCheck = lambda: False,
    retries_failed: bool = False,
) -> SearchReport:
    """Run one search with the store, workers and tracker of `settings`; see `run_search`.

    Raises:
        ConfigError: if something cannot be used.
        SpecDecError: if the search fails; what it evaluated is stored.
    """
    with Store.open(settings.resolved_database_url) as store:
        return run_search(
            config,
            settings,
            store,
            _pool(settings),
            tracker=open_tracker(settings),
            log=log,
            progress=progress,
            flow_run_id=flow_run_id,
            should_stop=should_stop,
            retries_failed=retries_failed,
            write_files=write_run_files,
        )


def sweep(
    config: CompareConfig | SensitivityConfig,
    settings: Settings,
    *,
    log: LogLine,
    progress: OnProgress,
    flow_run_id: str | None = None,
    should_stop: StopCheck = lambda: False,
    retries_failed: bool = False,
) -> SweepReport:
    """Compare strategies, or sweep tolerances, with the store and workers of `settings`.

    Raises:
        ConfigError: if something cannot be used.
        SpecDecError: if a search fails; what was evaluated is stored.
    """
    with Store.open(settings.resolved_database_url) as store:
        return run_sweep(
            config,
            settings,
            store,
            _pool(settings),
            tracker=open_tracker(settings),
            log=log,
            progress=progress,
            flow_run_id=flow_run_id,
            should_stop=should_stop,
            retries_failed=retries_failed,
            write_files=write_run_files,
        )


def calibrate(
    config: CalibrationConfig,
    settings: Settings,
    *,
    log: LogLine,
    progress: OnProgress,
    flow_run_id: str | None = None,
    should_stop: StopCheck = lambda: False,
) -> CalibrationRecord:
    """Measure one target with the store and workers of `settings`.

    Raises:
        ConfigError: if something cannot be used.
        SpecDecError: if the measurement fails.
    """
    with Store.open(settings.resolved_database_url) as store:
        return run_calibration(
            config,
            settings,
            store,
            _pool(settings),
            log=log,
            progress=progress,
            flow_run_id=flow_run_id,
            should_stop=should_stop,
        )


def benchmark(
    config: BenchmarkConfig,
    settings: Settings,
    *,
    log: LogLine,
    progress: OnProgress,
    flow_run_id: str | None = None,
    should_stop: StopCheck = lambda: False,
    kind: str,
) -> BenchmarkReport:
    """Run one benchmark with the store, workers and tracker of `settings`.

    Raises:
        ConfigError: if something cannot be used.
        SpecDecError: if the benchmark fails; what it measured is stored.
    """
    with Store.open(settings.resolved_database_url) as store:
        return run_benchmark(
            config,
            settings,
            store,
            _pool(settings),
            tracker=open_tracker(settings),
            log=log,
            progress=progress,
            flow_run_id=flow_run_id,
            should_stop=should_stop,
            kind=kind,
        )


def verify_profile(
    profile_id: int,
    settings: Settings,
    *,
    log: LogLine,
    progress: OnProgress,
    should_stop: StopCheck = lambda: False,
) -> VerifyReport:
    """Measure a stored profile again with the store and workers of `settings`.

    Raises:
        ConfigError: if its run, target or suite is not what it was.
        SpecDecError: if the measurement fails.
    """
    with Store.open(settings.resolved_database_url) as store:
        return verify_stored(
            profile_id,
            settings,
            store,
            _pool(settings),
            log=log,
            progress=progress,
            should_stop=should_stop,
        )


def _pool(settings: Settings) -> PoolFactory:
    return pool_factory(settings, ModelEvaluatorFactory(settings))
