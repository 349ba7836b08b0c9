"""A bounded queue whose batches never mix groups, such as skip sets."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from specdec_core.errors import QueueFullError

ItemT = TypeVar("ItemT")


class GroupQueue(Generic[ItemT]):
    """Waiting requests by arrival; a batch is the oldest and those behind it of its group.

    The oldest request is always in the next batch, so no group starves another.

    Args:
        capacity: Most items that wait.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[tuple[str, ItemT]] = deque()
        self._changed = threading.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting)

    def put(self, group: str, item: ItemT) -> None:
        """Let `item` wait for a batch of `group`.

        Raises:
            QueueFullError: if no more may wait, or the queue is closed.
        """
        with self._changed:
            if self._is_closed or len(self._waiting) >= self._capacity:
                state = "closed" if self._is_closed else "full"
                raise QueueFullError(
                    f"the queue of {self._capacity} requests is {state}: try again later"
                )
            self._waiting.append((group, item))
            self._changed.notify()

    def take(self, limit: int) -> list[ItemT]:
        """Wait for the next batch of one group, at most `limit` items, oldest first.

        Returns:
            The batch; empty once the queue is closed and nothing waits.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return []
            group = self._waiting[0][0]
            batch: list[ItemT] = []
            others: deque[tuple[str, ItemT]] = deque()
            for name, item in self._waiting:
                if name == group and len(batch) < limit:
                    batch.append(item)
                else:
                    others.append((name, item))
            self._waiting = others
            return batch

    def discard(self, item: ItemT) -> bool:
        """Remove `item` if it still waits; return whether it did."""
        with self._changed:
            before = len(self._waiting)
            self._waiting = deque(pair for pair in self._waiting if pair[1] is not item)
            return len(self._waiting) < before

    def close(self) -> None:
        """Refuse new items and let `take` end once nothing waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
