"""The study of a search, written while the driver goes on: a trial takes longer than some jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from specdec_core.search.outcome import Failure, Loss, Score, ScoreBounds
from specdec_core.search.study import StudyLedger
from specdec_core.skip import SkipConfig


class BackgroundLedger:
    """Records trials in the order told, in one thread of its own; see `StudyLedger`.

    A driver that waited for each trial would leave workers without their next job meanwhile. What
    cannot be written is raised by the next call, and by `flush` at the latest.

    Args:
        ledger: The open ledger; it is used and closed by this one only.
    """

    def __init__(self, ledger: StudyLedger) -> None:
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="study")
        self._pending: list[Future[None]] = []

    @property
    def name(self) -> str:
        """Name of the study."""
        return self._ledger.name

    def start(self, skip: SkipConfig, key: str, level: int) -> None:
        """Open the trial of one configuration.

        Raises:
            StoreError: if the storage could not be used, now or before; so do all methods.
        """
        self._later(self._ledger.start, skip, key, level)

    def finish(self, key: str, result: Score | Failure, seconds: float | None = None) -> None:
        """Close the trial of one configuration with its values, or as failed."""
        self._later(self._ledger.finish, key, result, seconds)

    def add_loss(
        self,
        skip: SkipConfig,
        key: str,
        level: int,
        result: Loss | Failure,
        seconds: float | None = None,
    ) -> None:
        """Record a configuration of which only the loss was asked."""
        self._later(self._ledger.add_loss, skip, key, level, result, seconds)

    def prune(self, key: str, bounds: ScoreBounds, history: Sequence[tuple[int, Score]]) -> None:
        """Close the trial of a configuration that was dropped unfinished."""
        self._later(self._ledger.prune, key, bounds, tuple(history))

    def flush(self) -> None:
        """Wait until everything told is written."""
        pending, self._pending = self._pending, []
        for each in pending:
            each.result()

    def close(self) -> None:
        """Write what was told, fail what is still open, and let another driver take over.

        Faults of writes are left to `flush`, so that they hide no other reason to close.
        """
        self._thread.shutdown()
        self._ledger.close()

    def _later(self, write: Callable[..., None], *arguments: Any) -> None:
        for each in [one for one in self._pending if one.done()]:
            self._pending.remove(each)
            each.result()
        self._pending.append(self._thread.submit(write, *arguments))
