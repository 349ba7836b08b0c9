"""Batches of one group only, oldest first."""

from __future__ import annotations

import random
import threading

import pytest

from specdec_core.errors import QueueFullError
from specdec_core.serving.batching import GroupQueue


def queue_of(*items: tuple[str, int]) -> GroupQueue[int]:
    queue: GroupQueue[int] = GroupQueue(capacity=100)
    for group, item in items:
        queue.put(group, item)
    return queue


def test_a_batch_is_the_oldest_and_its_group() -> None:
    queue = queue_of(("3", 1), ("", 2), ("3", 3), ("a4", 4), ("", 5), ("3", 6))
    assert [queue.take(2) for _ in range(4)] == [[1, 3], [2, 5], [4], [6]]


@pytest.mark.parametrize("seed", range(20))
def test_two_groups_never_share_a_batch_and_nobody_is_passed_for_ever(seed: int) -> None:
    rng = random.Random(seed)
    items = [(rng.choice(["", "3", "a4"]), number) for number in range(40)]
    group_of = {number: group for group, number in items}
    queue, waiting = queue_of(*items), [number for _, number in items]
    while waiting:
        batch = queue.take(rng.randint(1, 4))
        assert len({group_of[item] for item in batch}) == 1
        assert batch[0] == waiting[0]
        waiting = [item for item in waiting if item not in batch]


def test_no_more_wait_than_may() -> None:
    queue: GroupQueue[int] = GroupQueue(capacity=1)
    queue.put("", 1)
    with pytest.raises(QueueFullError, match="the queue of 1 requests is full: try again later"):
        queue.put("", 2)
    assert queue.discard(1)
    assert not queue.discard(1)
    queue.put("", 3)
    assert queue.take(5) == [3]


def test_a_closed_queue_gives_what_waits_and_then_nothing() -> None:
    queue = queue_of(("", 1))
    queue.close()
    with pytest.raises(QueueFullError, match="closed"):
        queue.put("", 2)
    assert [queue.take(1), queue.take(1)] == [[1], []]


def test_take_waits_for_the_first_item() -> None:
    queue: GroupQueue[int] = GroupQueue(capacity=1)
    taken: list[list[int]] = []
    thread = threading.Thread(target=lambda: taken.append(queue.take(1)))
    thread.start()
    queue.put("", 7)
    thread.join(timeout=10)
    assert taken == [[7]]
