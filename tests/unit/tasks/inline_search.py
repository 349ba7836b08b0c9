"""A search whose evaluator reads a table, in this process."""

from __future__ import annotations

from db.store import Store
from specdec_core.config.settings import Settings
from tasks.jobs import StopCheck
from tasks.pool import WorkerPool, pool_factory
from tasks.report import SearchReport
from tasks.search import run_search
from tests.table_evaluator import Control, TableEvaluator, config, workload


def search(settings: Settings, store: Store, control: Control, **changes: object) -> SearchReport:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    return run_search(config(**changes), settings, store, start, prepare_workload=workload)


def refuse_pool(should_stop: StopCheck) -> WorkerPool:
    raise AssertionError("no worker may be started")
