"""Where requests wait for the one decode at a time, and hear of their text."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from specdec_core.errors import QueueFullError, SearchCancelledError
from specdec_core.models.view import TargetView
from specdec_core.serving.batching import GroupQueue
from specdec_core.serving.controller import Lease
from specdec_core.serving.generator import TextAnswer, TextGenerator, TextRequest

logger = logging.getLogger(__name__)

Event = str | TextAnswer | Exception
"""A piece of text, then either the whole answer or what went wrong."""


@dataclass(eq=False, slots=True)
class Job:
    """One request on its way; `tell` is called from the decoding thread and must not wait."""

    lease: Lease[TargetView]
    request: TextRequest
    tell: Callable[[Event], None]
    cancelled: threading.Event = field(default_factory=threading.Event)


class Desk:
    """Decodes jobs one at a time in a thread of its own, in the order of their arrival.

    Args:
        generator: Decodes.
        capacity: Most jobs that wait.
    """

    def __init__(self, generator: TextGenerator, capacity: int) -> None:
        self._generator = generator
        self._queue: GroupQueue[Job] = GroupQueue(capacity)
        self._thread = threading.Thread(target=self._work, name="decode", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Let `job` wait for its turn.

        Raises:
            QueueFullError: if as many wait as may; its lease is ended.
        """
        try:
            self._queue.put(job.lease.group, job)
        except QueueFullError:
            job.lease.abort()
            raise

    def withdraw(self, job: Job) -> None:
        """Stop `job`, wherever it is: nobody listens any more."""
        job.cancelled.set()
        if self._queue.discard(job):
            job.lease.abort()

    def close(self) -> None:
        """Take no more jobs and wait for those that were taken."""
        self._queue.close()
        self._thread.join()

    def _work(self) -> None:
        # Requests choose their own sampling, and one decode has one: batches of one.
        while batch := self._queue.take(limit=1):
            for job in batch:
                self._decode(job)

    def _decode(self, job: Job) -> None:
        try:
            answer = self._generator.answer(job.lease, job.request, job.tell, job.cancelled.is_set)
        except SearchCancelledError:
            logger.info("a request was withdrawn while it was decoded")
        except Exception as error:  # noqa: BLE001 - the thread must outlive any request
            logger.warning("a request failed: %s: %s", type(error).__name__, error)
            job.tell(error)
        else:
            job.tell(answer)
