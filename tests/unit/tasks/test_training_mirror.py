"""Trainings in MLflow: curves by step, registered drafts with lineage, sync without duplicates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from tasks.mlflow_client import KEY_TAG, MlflowMirror
from tasks.sinks import sync_runs
from tasks.training_mirror import curve_points
from tests.integration import store_examples
from tests.unit.flows import training_examples as examples

BEGUN = datetime(2026, 1, 2, tzinfo=UTC)


def test_points_have_the_times_of_the_training() -> None:
    start, later = curve_points(store_examples.training("r").curve, BEGUN)
    assert (start.step, start.milliseconds) == (0, round(1000 * BEGUN.timestamp()))
    assert later.milliseconds - start.milliseconds == 20_000
    assert start.metrics == {
        "expected_length/sampling": 1.75,
        "expected_acceptance_sampling/01": 0.5,
        "expected_acceptance_sampling/02": 0.5,
        "phase": 1.0,
    }
    assert later.metrics["tokens_per_s"] == 1500.0
    assert later.metrics["expected_length/greedy"] == 2.0


def test_curve_and_draft_arrive_once_however_often_they_are_sent(
    settings: Settings, store: Store, tmp_path: Path
) -> None:
    report = examples.seed_training(store)
    files = tmp_path / "draft"
    files.mkdir()
    (files / "config.json").write_text("{}")
    moved = report.checkpoint.model_copy(update={"folder": str(files)})
    summary = report.model_copy(update={"checkpoint": moved}).model_dump(mode="json")
    for _ in range(2):
        store.runs.update(report.run_id, tracker_id=None, summary=summary)
        assert sync_runs(store, settings).run_ids == (report.run_id,)
    stored = store.runs.get(report.run_id)
    assert stored is not None
    assert stored.tracker_id is not None
    client: Any = MlflowMirror.connect(settings.resolved_mlflow_url, settings.home_dir).client
    run = client.get_run(stored.tracker_id)
    assert run.data.metrics["best_length"] == pytest.approx(2.2)
    assert run.data.metrics["speedup/math_gsm8k/chain/T1"] == 1.25
    history = client.get_metric_history(stored.tracker_id, "expected_length/sampling")
    assert [(point.step, point.value) for point in history] == [(0, 1.75), (50, 2.125)]

    (version,) = client.search_model_versions("name = 'specdec-draft-smollm2-135m-pruned'")
    assert version.run_id == stored.tracker_id
    assert version.tags[KEY_TAG] == "c" * 64
    assert (version.tags["loss"], version.tags["data_hash"]) == ("wtv", "d" * 64)
    assert version.tags["lineage.code"] == "c" * 8
    (logged,) = client.search_logged_models([run.info.experiment_id])
    assert (logged.model_type, logged.params["loss"]) == ("draft", "wtv")
    assert {metric.key for metric in logged.metrics} >= {"best_length", "realised_length"}
    assert logged.source_run_id == stored.tracker_id


def test_a_training_that_was_cut_off_keeps_its_curve_in_the_tracker(
    settings: Settings, store: Store
) -> None:
    run = store_examples.make_run(store, kind="train-drafter")
    store.trainings.put(store_examples.training(run.id))
    store.runs.update(run.id, status="failed", error="killed")
    sync_runs(store, settings)
    stored = store.runs.get(run.id)
    assert stored is not None
    client: Any = MlflowMirror.connect(settings.resolved_mlflow_url, settings.home_dir).client
    assert client.get_run(stored.tracker_id).info.status == "FAILED"
    assert [p.step for p in client.get_metric_history(stored.tracker_id, "loss")] == [50]


def test_trainings_are_children_of_their_comparison(settings: Settings, store: Store) -> None:
    trained = examples.seed_training(store)
    run = store_examples.make_run(store, kind="compare-losses", name="kl wtv")
    summary = examples.loss_report(trained.run_id).model_dump(mode="json")
    store.runs.update(run.id, status="completed", summary=summary)
    store.runs.update(trained.run_id, tracker_id="t")
    sync_runs(store, settings)
    stored = store.runs.get(run.id)
    assert stored is not None
    client: Any = MlflowMirror.connect(settings.resolved_mlflow_url, settings.home_dir).client
    parent = client.get_run(stored.tracker_id)
    assert parent.data.metrics["change_estimate/wtv/chain/T1"] == pytest.approx(1.0)
    children = client.search_runs(
        [parent.info.experiment_id], f"tags.`mlflow.parentRunId` = '{stored.tracker_id}'"
    )
    # Both rows of the example name the same training.
    assert [child.data.params["loss"] for child in children] == ["wtv"]
