"""Workers that have their next job at hand: on real Ray; only the model is a table."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from tasks.jobs import Completed, JobFailure
from tasks.ray_pool import RayPool
from tests import run_fixtures
from tests.table_evaluator import Control, TableEvaluator, workload

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("ray_here"),
]

control, ray_here = run_fixtures.control, run_fixtures.ray_here


def ask(skip: str) -> EvaluationRequest:
    return workload().request(skip=skip, drafter="none", item_ids=["item-01"], max_new_tokens=8)


def make_pool(tmp_path: Path, control: Control, num_workers: int) -> RayPool:
    home, cache = tmp_path / "home", tmp_path / "cache"
    settings = Settings(home=home, cache=cache, threads=1, num_workers=num_workers)
    pool = RayPool(TableEvaluator(control.folder), settings)
    until(lambda: len(pool.pids) == num_workers, pool)
    return pool


def until(is_so: Callable[[], bool], pool: RayPool | None = None) -> list[Completed]:
    """Wait for something, at most a minute; the pool, if any, is looked after meanwhile."""
    ended: list[Completed] = []
    deadline = time.monotonic() + 60
    while not is_so() and time.monotonic() < deadline:
        if pool is not None:
            ended += pool.wait(0.05)
        else:
            time.sleep(0.05)
    assert is_so()
    return ended


def finish(pool: RayPool) -> list[Completed]:
    return until(lambda: pool.is_idle, pool)


def begun(control: Control) -> list[str]:
    return [label for _, label in control.calls]


def test_a_worker_goes_straight_on_while_its_driver_is_busy(
    tmp_path: Path, control: Control
) -> None:
    (control.folder / "sleep").write_text("0.5")
    with make_pool(tmp_path, control, 1) as pool:
        assert pool.num_ahead == 1
        pool.submit(ask("1"))
        pool.submit(ask("2"))
        until(lambda: len(control.calls) == 2)  # nobody asks the pool for anything
        time.sleep(2.0)
        done = finish(pool)
        assert [each.job for each in done] == [ask("1"), ask("2")]
        (times,) = pool.times
        (first, ended), (second, last) = times.jobs
        # The driver was busy for two seconds after both; the worker rested between them for none.
        assert 0.4 < ended - first < 1.5
        assert 0.4 < last - second < 1.5
        assert 0.0 <= second - ended < 0.4


def test_the_next_job_of_a_group_goes_before_the_next_group(
    tmp_path: Path, control: Control
) -> None:
    with make_pool(tmp_path, control, 1) as pool:
        pool.submit(ask("1"), ask("2"), ask("3"))
        pool.submit(ask("4"))
        finish(pool)
        assert begun(control) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("rest", [("2",), ("2", "3")])
def test_what_waited_in_a_worker_that_died_is_done_unharmed(
    tmp_path: Path, control: Control, rest: tuple[str, ...]
) -> None:
    (control.folder / "die-once-1").touch()
    (control.folder / "sleep").write_text("1")
    with make_pool(tmp_path, control, 1) as pool:
        pool.submit(ask("1"))
        pool.submit(*map(ask, rest))
        until(lambda: control.calls == [(ask("1").key, "1")])
        lost, *done = finish(pool)
        assert isinstance(lost.result, JobFailure)
        assert (lost.job, lost.result.kind) == (ask("1"), "lost")
        assert [each.job for each in done] == [ask(skip) for skip in rest]
        assert not any(isinstance(each.result, JobFailure) for each in done)
        assert begun(control) == ["1", *rest]
        died, replacement = pool.times
        assert (len(died.jobs), len(replacement.jobs)) == (1, len(rest))
        assert died.jobs[-1][1] == died.down


def test_what_waits_behind_a_long_job_goes_to_whoever_is_free(
    tmp_path: Path, control: Control
) -> None:
    (control.folder / "sleep").write_text("60")
    with make_pool(tmp_path, control, 2) as pool:
        pool.submit(ask("1"))
        until(lambda: begun(control) == ["1"])
        (control.folder / "sleep").write_text("1")
        for skip in ("2", "3", "4"):
            pool.submit(ask(skip))  # one is begun, one waits in each worker
        ended = until(lambda: len(control.calls) == 4, pool)
        (control.folder / "sleep").write_text("0")
        while len(ended) < 3:
            ended += pool.wait(1.0)
        assert {each.job for each in ended} == {ask("2"), ask("3"), ask("4")}
        assert not any(isinstance(each.result, JobFailure) for each in ended)
        assert not pool.is_idle
        pool.stop()
        (stopped,) = finish(pool)
        assert stopped.job == ask("1")
        assert sorted(begun(control)) == ["1", "2", "3", "4"]


def test_stop_ends_what_is_at_work_and_what_waits_behind_it(
    tmp_path: Path, control: Control
) -> None:
    (control.folder / "sleep").write_text("60")
    with make_pool(tmp_path, control, 1) as pool:
        for skip in ("1", "2", "3"):
            pool.submit(ask(skip))
        until(lambda: begun(control) == ["1"])
        pool.stop()
        done = finish(pool)
        assert [each.job for each in done] == [ask("1"), ask("2")]
        kinds = {each.result.kind for each in done if isinstance(each.result, JobFailure)}
        assert kinds == {"cancelled"}
        assert begun(control) == ["1"]
