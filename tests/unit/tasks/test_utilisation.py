"""How workers spent their time, from clock readings worked out by hand."""

from __future__ import annotations

import pytest

from specdec_core.config.settings import Settings
from tasks.pool import InlinePool
from tasks.utilisation import Utilisation, WaitingLog, WorkerTimes, utilisation
from tests.table_evaluator import Control, TableEvaluator, workload


def log(*marks: tuple[float, str]) -> WaitingLog:
    made = WaitingLog()
    for now, waiting in marks:
        made.note(now, waiting)  # type: ignore[arg-type]  # literals
    return made


def test_idle_time_is_split_by_what_was_waiting() -> None:
    first = WorkerTimes(up=0.0, jobs=[(10.0, 14.0), (14.0, 20.0)])
    second = WorkerTimes(up=8.0, jobs=[(11.0, 15.0)])
    marks = log((10.0, "jobs"), (11.0, "nothing"), (16.0, "turn"), (18.0, "nothing"))
    found = utilisation([first, second], marks)
    # From 10 to 20. The second one rests 10-11 with jobs queued, 15-16 and 18-20 with nothing to
    # do, and 16-18 since something runs alone.
    assert found == Utilisation(
        num_workers=2,
        span_s=10.0,
        present_s=20.0,
        busy_s=14.0,
        busy_shares=(1.0, 0.4),
        idle_nothing_s=3.0,
        idle_alone_s=2.0,
        idle_queued_s=1.0,
    )
    assert found.busy_share == pytest.approx(0.7)
    assert found.text.startswith("2 busy 70% of 20.0 s (each 100%, 40%); idle 3.0 s with nothing")


def test_a_worker_counts_from_when_it_is_up_until_it_is_lost() -> None:
    late = WorkerTimes(up=6.0, jobs=[(6.0, 8.0)])
    lost = WorkerTimes(up=0.0, jobs=[(0.0, 3.0)], down=3.0)
    never_used = WorkerTimes(up=9.0)
    lasting = WorkerTimes(up=0.0, jobs=[(1.0, 8.0)])
    found = utilisation([late, lost, never_used, lasting], log())
    assert found is not None
    # The span is 0 to 8: the late one is there for 2 s, the lost one for 3, the last for 8.
    assert found.present_s == 2.0 + 3.0 + 0.0 + 8.0
    assert found.busy_shares == (1.0, 1.0, 0.0, 7 / 8)
    assert found.idle_nothing_s == 1.0


def test_no_jobs_no_figures() -> None:
    assert utilisation([WorkerTimes(up=1.0)], log()) is None


def test_the_pool_in_this_process_reads_the_clock_around_each_job(
    control: Control, settings: Settings
) -> None:
    readings = iter([5.0, 6.0, 8.0, 8.5, 9.0])  # up, then the ends of two jobs
    pool = InlinePool(TableEvaluator(control.folder), clock=lambda: next(readings))
    for skip in ("1", "2"):
        pool.submit(
            workload().request(skip=skip, drafter="none", item_ids=["item-01"], max_new_tokens=8)
        )
    while not pool.is_idle:
        pool.wait(1.0)
    assert pool.times == [WorkerTimes(5.0, [(6.0, 8.0), (8.5, 9.0)])]
