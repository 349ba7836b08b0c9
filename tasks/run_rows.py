"""The row of a run: how it begins, and how it ends when it does not end well."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from typing import Literal

import psutil

from db.schemas import RunRecord
from db.store import Store
from specdec_core.config.base import Record
from specdec_core.config.settings import Settings
from specdec_core.errors import SearchCancelledError, StoreError
from tasks.runtime import provenance

EndStatus = Literal["completed", "failed", "cancelled"]


def end_status(error: BaseException) -> Literal["failed", "cancelled"]:
    """Return how a run ended by `error` is marked.

    A signal that arrives inside a compiled library comes out as the cause of a SystemError.
    """
    if isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    # Interrupts, exits and the orchestrator's termination signal are no ordinary exceptions.
    is_cancelled = isinstance(error, SearchCancelledError) or not isinstance(error, Exception)
    return "cancelled" if is_cancelled else "failed"


@contextlib.contextmanager
def note_end(store: Store, run_id: str) -> Iterator[None]:
    """Mark the run as failed or cancelled, with the reason, if the block raises.

    A store that cannot be reached must not hide the first reason.
    """
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(StoreError):
            text = ": ".join(filter(None, [type(error).__name__, str(error)]))
            store.runs.update(run_id, status=end_status(error), error=text[:4000])
        raise


def start_run(
    store: Store,
    kind: str,
    name: str,
    config: Record,
    settings: Settings,
    flow_run_id: str | None,
) -> RunRecord:
    """Create the row of a run, or continue that of a retried flow run.

    Rows that a killed process left as running are given an end first.
    """
    end_lost_runs(store)
    return store.runs.create(
        kind, name, config.model_dump(mode="json"), provenance(settings), flow_run_id
    )


def end_lost_runs(store: Store) -> int:
    """Mark runs as failed whose process on this machine is gone, as after kill -9.

    Returns:
        Number of rows that were given an end.
    """
    lost = [run for run in store.runs.list(status="running", limit=None) if _is_lost(run)]
    for run in lost:
        error = "its process ended without a word; the same command continues with what is stored"
        store.runs.update(run.id, status="failed", error=error)
    return len(lost)


def _is_lost(run: RunRecord) -> bool:
    """True if the run's process was on this machine and is not there any more."""
    pid, started = run.provenance.get("pid"), run.provenance.get("process_started_at")
    if run.provenance.get("host") != platform.node() or pid is None or started is None:
        return False
    try:
        return bool(psutil.Process(pid).create_time() != started)
    except psutil.NoSuchProcess:
        return True
