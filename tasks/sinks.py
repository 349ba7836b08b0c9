"""MLflow as a mirror of stored runs: best effort, in the background, filled up by `sync_runs`."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from db.schemas import RunRecord
from db.store import Store
from specdec_core.config.base import Record
from specdec_core.config.settings import Settings
from specdec_core.search.storage import without_password
from tasks.agreement import scored_rows
from tasks.mirrored import (
    MIRRORED_ROLES,
    ChildRun,
    CurvePoint,
    TrackedModel,
    run_parameters,
)
from tasks.mlflow_client import MlflowMirror, TrackerDownError
from tasks.run_rows import EndStatus, end_status, note_end
from tasks.runtime import LogLine, run_files
from tasks.training_mirror import mirror_stored, stored_metrics

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """Where a run is mirrored. No method raises or waits, except `close`, which waits shortly."""

    def start(self, run: RunRecord, parameters: Mapping[str, Any]) -> None:
        """Open the parent run."""
        ...

    def child(self, run_id: str, child: ChildRun) -> None:
        """Add one child of the run."""
        ...

    def curve(self, run_id: str, points: Sequence[CurvePoint]) -> None:
        """Add points to the curves of the run."""
        ...

    def model(self, run_id: str, model: TrackedModel) -> None:
        """Register a draft that the run trained."""
        ...

    def finish(
        self,
        run_id: str,
        status: EndStatus,
        metrics: Mapping[str, float | None],
        files: Path | None = None,
    ) -> None:
        """Close the parent run; what lies in the folder `files` becomes its artefacts."""
        ...

    def close(self, timeout_s: float) -> str | None:
        """Wait for what is queued; return the tracker's run id if everything has arrived."""
        ...


class NullTracker:
    """Mirrors nothing."""

    def start(self, run: RunRecord, parameters: Mapping[str, Any]) -> None:
        """Do nothing."""

    def child(self, run_id: str, child: ChildRun) -> None:
        """Do nothing."""

    def curve(self, run_id: str, points: Sequence[CurvePoint]) -> None:
        """Do nothing."""

    def model(self, run_id: str, model: TrackedModel) -> None:
        """Do nothing."""

    def finish(
        self,
        run_id: str,
        status: EndStatus,
        metrics: Mapping[str, float | None],
        files: Path | None = None,
    ) -> None:
        """Do nothing."""

    def close(self, timeout_s: float) -> str | None:  # noqa: ARG002 - the protocol's signature
        """Return None: there is no tracker run."""
        return None


@dataclass(slots=True)
class MlflowTracker:
    """Sends everything to MLflow from a thread of its own.

    The first fault is logged once, ends mirroring for this run, and leaves the run unsynced in
    the store; `sync_runs` sends it later.

    Args:
        url: Tracking URI.
        home: State folder: migration lock, and artefacts where the URI is a database.
    """

    url: str
    home: Path
    _queue: queue.SimpleQueue[tuple[str, tuple[Any, ...]] | None] = field(
        default_factory=queue.SimpleQueue
    )
    _thread: threading.Thread | None = None
    _tracker_id: str | None = None
    _is_complete: bool = False

    def start(self, run: RunRecord, parameters: Mapping[str, Any]) -> None:
        """Open the parent run."""
        self._queue.put(("start", (run, dict(parameters))))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()

    def child(self, run_id: str, child: ChildRun) -> None:
        """Add one child of the run."""
        self._queue.put(("child", (run_id, child)))

    def curve(self, run_id: str, points: Sequence[CurvePoint]) -> None:
        """Add points to the curves of the run."""
        self._queue.put(("curve", (run_id, tuple(points))))

    def model(self, run_id: str, model: TrackedModel) -> None:
        """Register a draft that the run trained."""
        self._queue.put(("model", (run_id, model)))

    def finish(
        self,
        run_id: str,
        status: EndStatus,
        metrics: Mapping[str, float | None],
        files: Path | None = None,
    ) -> None:
        """Close the parent run; what lies in the folder `files` becomes its artefacts."""
        self._queue.put(("finish", (run_id, status, dict(metrics), files)))

    def close(self, timeout_s: float) -> str | None:
        """Wait for what is queued; return the tracker's run id if everything has arrived."""
        if self._thread is None:
            return None
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            logger.warning(
                "the tracker at %s did not take all in %.0f s: `specdec sync` fills the rest",
                without_password(self.url),
                timeout_s,
            )
            return None
        self._thread = None
        return self._tracker_id if self._is_complete else None

    def _work(self) -> None:
        try:
            mirror = MlflowMirror.connect(self.url, self.home)
            while (item := self._queue.get()) is not None:
                self._send(mirror, *item)
        except TrackerDownError as error:
            logger.warning(
                "the tracker at %s is not usable, this run is not mirrored (%s): results are in "
                "the store, `specdec sync` sends them later",
                without_password(self.url),
                error,
            )

    def _send(self, mirror: MlflowMirror, what: str, arguments: tuple[Any, ...]) -> None:
        if what == "start":
            run, parameters = arguments
            self._tracker_id = mirror.parent(run.id, run.kind, run.name, parameters)
            return
        assert self._tracker_id is not None
        if what == "child":
            mirror.child(self._tracker_id, *arguments)
            return
        if what in ("curve", "model"):
            getattr(mirror, what)(self._tracker_id, arguments[1])
            return
        _, status, metrics, files = arguments
        mirror.finish(self._tracker_id, status, metrics, files)
        self._is_complete = True


def open_tracker(settings: Settings) -> Tracker:
    """Return the tracker of the settings; nothing is connected before its first run."""
    return MlflowTracker(settings.resolved_mlflow_url, settings.home_dir)


@contextlib.contextmanager
def mirrored_run(
    store: Store, run: RunRecord, tracker: Tracker, files: Path | None = None
) -> Iterator[dict[str, float | None]]:
    """Mirror a run while the block works; what the block puts into the yielded mapping is logged.

    So are the files it leaves in the folder `files`. A block that raises marks the run as failed or
    cancelled, in the store and in the tracker. The tracker's id is stored once everything has
    arrived there.
    """
    metrics: dict[str, float | None] = {}
    try:
        with note_end(store, run.id):
            tracker.start(run, run_parameters(run))
            yield metrics
    except BaseException as error:
        tracker.finish(run.id, end_status(error), {})
        tracker.close(timeout_s=5.0)
        raise
    tracker.finish(run.id, "completed", metrics, files)
    tracker_id = tracker.close(timeout_s=20.0)
    if tracker_id is not None:
        store.runs.update(run.id, tracker_id=tracker_id)


class SyncReport(Record):
    """What `sync_runs` did."""

    num_sent: int = Field(description="runs that the tracker lacked and has now")
    run_ids: tuple[str, ...] = Field(description="these runs, oldest first")


def sync_runs(
    store: Store, settings: Settings, log: LogLine = logger.info, *, limit: int = 1000
) -> SyncReport:
    """Send every finished run that the tracker lacks.

    Runs that arrived in part are completed: parents and children are found by their tags, so
    that nothing is sent twice.

    Raises:
        TrackerDownError: if the tracker cannot be reached.
    """
    missing = [
        run
        for run in reversed(store.runs.list(limit=limit))
        if run.tracker_id is None and run.status != "running"
    ]
    if missing:
        mirror = MlflowMirror.connect(settings.resolved_mlflow_url, settings.home_dir)
        for run in missing:
            _sync_run(store, mirror, run, run_files(settings, run.id))
            log(f"run {run.id} ({run.kind} {run.name}) sent to the tracker")
    return SyncReport(num_sent=len(missing), run_ids=tuple(run.id for run in missing))


def _sync_run(store: Store, mirror: MlflowMirror, run: RunRecord, files: Path) -> None:
    tracker_id = mirror.parent(run.id, run.kind, run.name, run_parameters(run))
    rows = [each for each in store.runs.evaluations(run.id) if each.role in MIRRORED_ROLES]
    known = {each.row.key: each for each in rows}.values()
    scored, name = scored_rows(store, [each.row for each in known])
    dense = next((row.summary for row in scored if not row.request.skip), None)
    for each, row in zip(known, scored, strict=True):
        mirror.child(tracker_id, run.id, ChildRun.of_row(row, each.level or 0, dense, name))
    for cell in store.benchmarks.list(run_id=run.id):
        mirror.child(tracker_id, run.id, ChildRun.of_cell(cell))
    assert run.status != "running"
    mirror_stored(mirror, tracker_id, store, run)
    mirror.finish(tracker_id, run.status, stored_metrics(run), files)
    store.runs.update(run.id, tracker_id=tracker_id)
