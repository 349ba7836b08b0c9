"""Mirroring to MLflow: parents and children, odd values, outages, sync without duplicates."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from db.schemas import RunRecord
from db.store import Store
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.settings import Settings
from specdec_core.search.storage import without_password
from tasks.benchmark import run_benchmark
from tasks.mirrored import ChildRun
from tasks.mlflow_client import (
    KEY_TAG,
    RUN_TAG,
    MlflowMirror,
    TrackerDownError,
)
from tasks.pool import pool_factory
from tasks.report import SearchReport
from tasks.search import run_search
from tasks.sinks import MlflowTracker, open_tracker, sync_runs
from tests.table_evaluator import Control, TableEvaluator, config, workload

PARENT_TAG = "mlflow.parentRunId"


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tracking database migrated once for all tests of this module."""
    home = tmp_path_factory.mktemp("mlflow")
    MlflowMirror.connect(f"sqlite:///{home / 'mlflow.db'}", home)
    return home / "mlflow.db"


CUT_OFF = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from tasks.mlflow_client import MlflowMirror

def kill(_c, _cur, statement, _p, _ctx, _many):
    if "CREATE INDEX index_metrics_run_uuid" in statement:
        os.kill(os.getpid(), signal.SIGKILL)

event.listen(Engine, "after_cursor_execute", kill)
MlflowMirror.connect(sys.argv[1], Path(sys.argv[2]))
"""


def test_a_process_killed_while_it_makes_the_tracking_database_leaves_none_half_made(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'mlflow.db'}"
    words = [sys.executable, "-c", CUT_OFF, url, str(tmp_path)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    mirror = MlflowMirror.connect(url, tmp_path)
    run_id = mirror.parent("0" * 32, "tss-search", "riddles", {})
    assert MlflowMirror.connect(url, tmp_path).client.get_run(run_id).info.run_id == run_id
    assert sorted(path.name for path in tmp_path.glob("mlflow*")) == ["mlflow.db"]


@pytest.fixture
def tracked(settings: Settings, migrated: Path) -> Settings:
    settings.home_dir.mkdir(parents=True, exist_ok=True)
    shutil.copy(migrated, settings.home_dir / "mlflow.db")
    return settings


def search(
    settings: Settings, store: Store, control: Control, tracker: MlflowTracker | None = None
) -> SearchReport:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    return run_search(
        config(),
        settings,
        store,
        start,
        tracker=tracker or open_tracker(settings),
        prepare_workload=workload,
    )


def runs(settings: Settings) -> list[Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(settings.resolved_mlflow_url)
    experiments = [e.experiment_id for e in client.search_experiments() if e.name != "Default"]
    return list(client.search_runs(experiments, max_results=1000)) if experiments else []


def test_a_search_is_one_parent_with_a_child_per_configuration(
    tracked: Settings, store: Store, control: Control
) -> None:
    report = search(tracked, store, control)
    stored = store.runs.get(report.run_id)
    assert stored is not None
    assert stored.tracker_id is not None
    found = runs(tracked)
    (parent,) = [run for run in found if PARENT_TAG not in run.data.tags]
    children = [run for run in found if PARENT_TAG in run.data.tags]
    assert parent.info.run_id == stored.tracker_id
    assert parent.info.status == "FINISHED"
    assert parent.data.params["beam"] == "2"
    assert parent.data.metrics["heldout_speedup_estimate"] > 1
    assert {run.data.tags[PARENT_TAG] for run in children} == {stored.tracker_id}
    assert len(children) == report.num_configurations + 1
    best = next(run for run in children if run.data.params["skip"] == "2,3")
    assert best.data.metrics["acceptance_gain"] == pytest.approx(report.answer.gain_acceptance)
    assert best.data.metrics["metric_gain"] == pytest.approx(report.answer.gain_metric)
    assert best.data.params["level"] == "2"
    assert best.data.tags[KEY_TAG] == report.answer.key
    assert best.data.tags[RUN_TAG] == report.run_id


def test_an_unreachable_tracker_never_fails_the_run_and_sync_fills_it_later(
    tracked: Settings,
    store: Store,
    control: Control,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    down = MlflowTracker(f"http://127.0.0.1:{port}", tracked.home_dir)
    report = search(tracked, store, control, down)
    assert report.answer.skip == "2,3"
    stored = store.runs.get(report.run_id)
    assert stored is not None
    assert stored.tracker_id is None
    assert [r.message for r in caplog.records if "specdec sync" in r.message] != []

    sent = sync_runs(store, tracked)
    assert sent.run_ids == (report.run_id,)
    found = runs(tracked)
    assert len(found) == report.num_configurations + 2
    best = next(run for run in found if run.data.params.get("skip") == "2,3")
    assert best.data.metrics["acceptance_gain"] == pytest.approx(report.answer.gain_acceptance)
    assert sync_runs(store, tracked).num_sent == 0


def test_sync_completes_a_run_that_arrived_in_part_without_duplicates(
    tracked: Settings, store: Store, control: Control
) -> None:
    report = search(tracked, store, control)
    before = {run.info.run_id for run in runs(tracked)}
    store.runs.update(report.run_id, tracker_id=None)
    assert sync_runs(store, tracked).num_sent == 1
    assert {run.info.run_id for run in runs(tracked)} == before


def test_sync_says_that_the_tracker_is_down(
    tracked: Settings, store: Store, control: Control
) -> None:
    search(tracked, store, control)
    store.runs.update(store.runs.list()[0].id, tracker_id=None)
    nowhere = tracked.model_copy(update={"mlflow_url": "sqlite:////proc/nowhere/mlflow.db"})
    with pytest.raises(TrackerDownError):
        sync_runs(store, nowhere)


def test_a_password_in_the_trackers_address_is_never_shown() -> None:
    shown = without_password("postgresql+psycopg://user:s3:cr/t@host:5432/mlflow")
    assert "s3" not in shown
    assert without_password("http://127.0.0.1:5000") == "http://127.0.0.1:5000"
    with pytest.raises(TrackerDownError) as down:
        MlflowMirror.connect("postgresql+psycopg://me:secret@127.0.0.1:1/x", Path("/proc/nowhere"))
    assert "secret" not in str(down.value)


def test_long_values_become_artefacts_and_odd_numbers_are_named(tracked: Settings) -> None:
    mirror = MlflowMirror.connect(tracked.resolved_mlflow_url, tracked.home_dir)
    parent = mirror.parent("run-1", "tss-search", "name", {"prompt": "x" * 7000, "bad:name": 1})
    child = ChildRun(
        "key-1", "1", {}, {"metric": float("nan"), "seconds": float("inf"), "tokens": 3.0}
    )
    child_id = mirror.child(parent, "run-1", child)
    found = mirror.client.get_run(parent)
    assert len(found.data.params["prompt"]) == 500
    assert "7000 characters: parameters/prompt.txt" in found.data.params["prompt"]
    assert found.data.params["bad_name"] == "1"
    text = tracked.home_dir.rglob("prompt.txt")
    assert next(text).read_text() == "x" * 7000
    values = mirror.client.get_run(child_id)
    assert values.data.metrics == {"tokens": 3.0}
    assert values.data.tags["specdec.not_finite"] == "metric, seconds"


def test_a_failed_run_is_marked_in_the_tracker(
    tracked: Settings, store: Store, control: Control
) -> None:
    (control.folder / "raise").write_text("dense")
    with pytest.raises(Exception, match="dense is broken"):
        search(tracked, store, control)
    (parent,) = runs(tracked)
    assert parent.info.status == "FAILED"


def test_a_search_leaves_the_files_that_were_written_when_it_ended(
    tracked: Settings, store: Store, control: Control
) -> None:
    from mlflow.tracking import MlflowClient

    def write(_store: Store, run: RunRecord, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "report.md").write_text(run.summary["headline"])

    report = run_search(
        config(),
        tracked,
        store,
        pool_factory(tracked, TableEvaluator(control.folder), is_inline=True),
        tracker=open_tracker(tracked),
        prepare_workload=workload,
        write_files=write,
    )
    (parent,) = [run for run in runs(tracked) if PARENT_TAG not in run.data.tags]
    client = MlflowClient(tracked.resolved_mlflow_url)
    (file,) = client.list_artifacts(parent.info.run_id)
    assert file.path == "report.md"
    written = Path(client.download_artifacts(parent.info.run_id, "report.md"))
    assert written.read_text() == report.headline


def test_a_benchmark_leaves_its_cells_its_plots_and_what_is_proven(
    tracked: Settings, store: Store, control: Control
) -> None:
    from mlflow.tracking import MlflowClient

    grid = BenchmarkConfig(
        target="path:/table", domains=("chat", "qa"), methods=("prompt-lookup",), num_items=4
    )
    start = pool_factory(tracked, TableEvaluator(control.folder), is_inline=True)
    report = run_benchmark(
        grid, tracked, store, start, tracker=open_tracker(tracked), prepare_workload=workload
    )
    found = runs(tracked)
    (parent,) = [run for run in found if PARENT_TAG not in run.data.tags]
    assert parent.data.metrics["mean_speedup_estimate/prompt-lookup"] == pytest.approx(2.0)
    assert parent.data.metrics["decoding_efficiency/prompt-lookup"] == pytest.approx(2.0)
    child = next(run for run in found if run.info.run_name == "chat prompt-lookup")
    assert child.data.params["proof"] == "up-to-ties"
    assert child.data.params["is_lossless"] == "True"
    assert child.data.params["sampling"] == "greedy"
    assert child.data.metrics["candidate_nodes_per_step"] == 4.0
    assert child.data.metrics["position_acceptance/01"] == 1.0
    assert child.data.metrics["seconds/forward"] > 0
    files = {
        f.path for f in MlflowClient(tracked.resolved_mlflow_url).list_artifacts(parent.info.run_id)
    }
    assert {Path(path).name for path in report.plots} <= files
