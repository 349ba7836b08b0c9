"""What all trainings of a session share: where they run and are kept, and who hears of them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from db.schemas import RunRecord
from db.store import Store
from specdec_core.config.base import Record
from specdec_core.config.settings import Settings
from tasks.jobs import StopCheck
from tasks.pool import PoolFactory
from tasks.report import OnProgress
from tasks.run_files import WriteFiles, leave_files, no_files
from tasks.runtime import LogLine
from tasks.sinks import NullTracker, Tracker

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Settings, store, workers and listeners of trainings, evaluations and comparisons of losses.

    Attributes:
        settings: Where things run and are kept.
        store: The open store.
        start_pool: Starts the workers that decode with drafts.
        make_tracker: Makes mirrors of results, best effort, one per run.
        log: Takes lines for the user.
        progress: Takes a record after every shard, step and measurement.
        should_stop: Once true, workers are stopped and the work ends as cancelled.
        flow_run_id: The orchestrator's run; a retry of it continues the same row.
        is_inline: Whether data and trainings are made in this process, without Ray.
        write_files: Writes report and plots of a finished run into its folder.
    """

    settings: Settings
    store: Store
    start_pool: PoolFactory
    make_tracker: Callable[[], Tracker] = NullTracker
    log: LogLine = logger.info
    progress: OnProgress = lambda _progress: None
    should_stop: StopCheck = lambda: False
    flow_run_id: str | None = None
    is_inline: bool = False
    write_files: WriteFiles = no_files

    def complete(self, run: RunRecord, report: Record) -> None:
        """Store the report of a run that is done, and leave its files."""
        summary = report.model_dump(mode="json")
        done = self.store.runs.update(run.id, status="completed", summary=summary, error=None)
        leave_files(self.write_files, self.store, done, self.settings)
