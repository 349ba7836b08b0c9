"""The search on real Ray workers; only the model is a table."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, SearchCancelledError
from tasks.jobs import JobFailure
from tasks.pool import pool_factory
from tasks.report import SearchReport
from tasks.search import run_search
from tests import run_fixtures
from tests.table_evaluator import Control, TableEvaluator, config, workload

pytestmark = [pytest.mark.ray, pytest.mark.slow]

store, control, ray_here = run_fixtures.store, run_fixtures.control, run_fixtures.ray_here


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", cache=tmp_path / "cache", threads=1, num_workers=2)


def search(settings: Settings, store: Store, control: Control, **options: object) -> SearchReport:
    start = pool_factory(settings, TableEvaluator(control.folder))
    return run_search(config(), settings, store, start, prepare_workload=workload, **options)  # type: ignore[arg-type]  # keyword options


def inline_answer(tmp_path: Path) -> SearchReport:
    other = Settings(home=tmp_path / "other", cache=tmp_path / "cache", threads=1)
    folder = tmp_path / "other-control"
    folder.mkdir()
    with Store.open(other.resolved_database_url) as store:
        start = pool_factory(other, TableEvaluator(folder), is_inline=True)
        return run_search(config(), other, store, start, prepare_workload=workload)


def test_four_workers_and_one_inline_agree_and_ray_is_released(
    settings: Settings, store: Store, control: Control, tmp_path: Path
) -> None:
    import ray

    report = search(settings.model_copy(update={"num_workers": 4}), store, control)
    reference = inline_answer(tmp_path)
    assert report.levels == reference.levels
    assert report.heldout == reference.heldout
    assert not ray.is_initialized()
    pids = {line.split()[2] for line in (control.folder / "calls").read_text().splitlines()}
    assert str(os.getpid()) not in pids
    used = report.costs.utilisation
    assert used is not None
    # Those that came up only after the last job are not among them.
    assert 1 <= used.num_workers == len(used.busy_shares) <= 4
    rests = used.idle_nothing_s + used.idle_alone_s + used.idle_queued_s
    assert used.busy_s + rests == pytest.approx(used.present_s)


@pytest.mark.usefixtures("ray_here")
def test_a_worker_killed_in_mid_evaluation_changes_nothing(
    settings: Settings, store: Store, control: Control, tmp_path: Path
) -> None:
    import ray

    for label in ("3", "2,3"):
        (control.folder / f"die-once-{label}").touch()
    report = search(settings, store, control)
    assert report.levels == inline_answer(tmp_path).levels
    assert ray.is_initialized()  # it was not ours to end
    counts = Counter(label for _, label in control.calls)
    assert counts["3"] == 2
    assert all(row.attempts <= 2 for row in store.evaluations.list(limit=None))


@pytest.mark.usefixtures("ray_here")
def test_a_poisoned_configuration_is_quarantined(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "poison").write_text("2,3")
    report = search(settings, store, control)
    (failed,) = [row for level in report.levels for row in level.rows if row.error]
    assert failed.skip == "2,3"
    assert "WorkerLostError" in (failed.error or "")
    assert Counter(label for _, label in control.calls)["2,3"] == 2
    assert report.answer.skip == "2"


@pytest.mark.usefixtures("ray_here")
def test_the_pool_replaces_a_worker_killed_from_outside(
    settings: Settings, control: Control
) -> None:
    from tasks.ray_pool import RayPool

    (control.folder / "sleep").write_text("2")
    request = workload().request(skip="2", drafter="none", item_ids=["item-01"], max_new_tokens=8)
    one = settings.model_copy(update={"num_workers": 1})
    with RayPool(TableEvaluator(control.folder), one) as pool:
        pool.submit(request)
        deadline = time.monotonic() + 60
        while not control.calls and time.monotonic() < deadline:
            assert pool.wait(0.2) == []
        os.kill(pool.pids[0], signal.SIGKILL)
        (lost,) = pool.wait(60)
        assert isinstance(lost.result, JobFailure)
        assert lost.result.kind == "lost"
        (control.folder / "sleep").write_text("0")
        pool.submit(request)
        (done,) = pool.wait(60)
        assert not isinstance(done.result, JobFailure)
        assert pool.is_idle


@pytest.mark.usefixtures("ray_here")
def test_cancel_ends_running_workers_soon_and_marks_the_run(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "sleep").write_text("60")
    stop = threading.Event()

    def stop_when_busy() -> None:
        while len(control.calls) < 2:
            time.sleep(0.05)
        stop.set()

    watcher = threading.Thread(target=stop_when_busy)
    watcher.start()
    started = time.monotonic()
    with pytest.raises(SearchCancelledError):
        search(settings, store, control, should_stop=stop.is_set)
    watcher.join()
    assert time.monotonic() - started < 50
    (run,) = store.runs.list()
    assert run.status == "cancelled"
    assert store.evaluations.count("failed") == 0


@pytest.mark.usefixtures("ray_here")
def test_more_workers_than_the_cluster_can_hold_are_refused(
    settings: Settings, store: Store, control: Control
) -> None:
    many = settings.model_copy(update={"num_workers": 5})
    with pytest.raises(ConfigError, match=r"5 workers need 5 CPU, but the Ray cluster .* has 2"):
        search(many, store, control)


@pytest.mark.usefixtures("ray_here")
def test_log_lines_of_workers_reach_the_run_log(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "raise").write_text("3")
    report = search(settings, store, control)
    log = Path(report.log_file).read_text()
    assert "model worker up: pid" in log
    failed = next(row for level in report.levels for row in level.rows if row.skip == "3")
    assert failed.key is not None
    assert f"[{failed.key[:12]}] ERROR tasks.worker: job {failed.key[:12]} failed" in log
