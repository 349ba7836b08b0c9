"""Training runs end to end on a tiny target: what is stored, skipped, mirrored and judged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import TrainingRunConfig
from specdec_core.errors import ConfigError, ExportError, SearchCancelledError
from tasks.draft_evaluation import evaluate_draft
from tasks.draft_runs import run_name, run_training, stored_report
from tasks.draft_stages import Stages
from tasks.evaluator import ModelEvaluatorFactory
from tasks.mirrored import CurvePoint, TrackedModel
from tasks.pool import pool_factory
from tasks.report import Progress
from tasks.sinks import NullTracker, Tracker
from tasks.training import train_draft
from tasks.training_keys import folder_hash
from tasks.training_report import TrainingReport
from tasks.training_setup import TrainingSetup
from tests.draft_prompts import settings_of
from tests.tiny_training_runs import tiny_run

Run = Callable[..., TrainingReport]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny target and its prompts."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


class Recorded(NullTracker):
    """Keeps what a tracker is sent."""

    def __init__(self) -> None:
        self.points: list[CurvePoint] = []
        self.models: list[TrackedModel] = []

    def curve(self, run_id: str, points: Any) -> None:
        self.points += points

    def model(self, run_id: str, model: TrackedModel) -> None:
        self.models.append(model)


def run(
    config: TrainingRunConfig,
    settings: Settings,
    store: Store,
    *,
    tracker: Tracker | None = None,
    stages: Stages | None = None,
    **options: Any,
) -> TrainingReport:
    setup = TrainingSetup(
        settings=settings,
        store=store,
        start_pool=pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True),
        make_tracker=lambda: tracker or NullTracker(),
        is_inline=True,
        **options,
    )
    return run_training(config, setup, stages)


def no_work(*_given: object, **_options: object) -> Any:
    raise AssertionError("a stage that is done was done again")


def test_a_training_is_stored_whole_and_the_second_run_answers_at_once(
    models: Path, settings: Settings, store: Store
) -> None:
    tracker, lines, seen = Recorded(), list[str](), list[Progress]()
    config = tiny_run(models)
    first = run(config, settings, store, tracker=tracker, log=lines.append, progress=seen.append)
    stored = store.runs.get(first.run_id)
    assert stored is not None
    assert (stored.kind, stored.status) == ("train-drafter", "completed")
    assert TrainingReport.model_validate(stored.summary) == first
    assert first.skipped == ()
    assert {progress.stage for progress in seen} == {"data", "training", "cells"}

    training = store.trainings.get(first.training_key)
    assert training is not None
    assert (training.status, training.loss, training.draft) == ("done", "wtv", "pruned:layers=0/2")
    # 10 training samples in batches of 4: 3 steps an epoch, 2 epochs; validated every 3.
    assert [p.step for p in training.curve if p.greedy is not None] == [0, 3, 6]
    assert first.outcome.num_steps == 6
    assert sorted({point.step for point in tracker.points}) == [0, 1, 2, 3, 4, 5, 6]
    by_step = {point.step: point.metrics for point in tracker.points}
    assert {"expected_length/greedy", "expected_acceptance_sampling/03"} <= set(by_step[3])
    assert {"loss", "learning_rate", "tokens_per_s"} <= set(by_step[1])

    checkpoint = store.checkpoints.find(first.checkpoint.content_hash)
    assert checkpoint == first.checkpoint
    best = first.outcome.best.sampling
    assert (checkpoint.criterion, checkpoint.expected_length) == ("sampling", best.length)
    assert checkpoint.data_hash == first.data.key
    assert first.evaluation is not None
    chain = next(cell for cell in first.evaluation.cells if cell.temperature == 1.0)
    assert checkpoint.realised_length == pytest.approx(chain.mean_accepted_tokens)
    assert checkpoint.state == "validated", checkpoint.reason
    assert checkpoint.exports
    assert all(Path(folder).is_dir() for folder in checkpoint.exports)
    (model,) = tracker.models
    assert (model.key, model.tags["loss"]) == (checkpoint.content_hash, "wtv")
    assert any(line.startswith("step 3: validation loss") for line in lines)

    again, lines = Recorded(), []
    nothing = Stages(train=no_work, evaluate=no_work, export=no_work)
    second = run(config, settings, store, tracker=again, log=lines.append, stages=nothing)
    assert second.skipped == ("data", "training", "evaluation", "export")
    assert [line.split(":")[0] for line in lines if "is done already" in line] == [
        f"{stage} is done already" for stage in second.skipped
    ]
    same = {"run_id": "", "skipped": (), "stage_s": {}, "log_file": ""}
    assert second.model_copy(update=same) == first.model_copy(update=same)
    assert again.points
    assert store.trainings.count() == store.checkpoints.count() == 1

    assert stored_report(store, settings, config, first.training_key) == second
    store.checkpoints.judge(
        checkpoint.content_hash,
        state="validated",
        reason="as code was before",
        evaluation_key="older",
        evaluation={},
        realised_length=2.0,
        realised_acceptance=(0.5,),
    )
    assert stored_report(store, settings, config, first.training_key) is None
    unevaluated = config.model_copy(update={"evaluate": False})
    assert stored_report(store, settings, unevaluated, first.training_key) is None


def test_a_report_is_found_by_key_and_configuration_and_no_other_one_is_read(
    models: Path, settings: Settings, store: Store
) -> None:
    config = tiny_run(models, evaluate=False, export=False, num_epochs=1)
    first, second = (run(config, settings, store) for _ in range(2))
    key = first.training_key
    asked = config.model_dump(mode="json")
    # Newer than both: of another key, not finished, of another name, and of another configuration.
    for name, given, status, found in (
        (run_name(config), asked, "completed", {"training_key": "of older code"}),
        (run_name(config), asked, "failed", {"training_key": key}),
        ("unreadable", asked, "completed", {}),
        (run_name(config), {**asked, "export": True}, "completed", {}),
    ):
        one = store.runs.create("train-drafter", name, given, {})
        store.runs.update(one.id, status=status, summary=found)  # type: ignore[arg-type]  # a literal
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE specdec_runs SET summary = '{' WHERE summary = '{}'")
    with pytest.raises(json.JSONDecodeError):
        store.runs.list(kind="train-drafter")
    assert stored_report(store, settings, config, key) == second
    assert stored_report(store, settings, config, "of older code") is None
    other = config.model_copy(update={"export": True, "evaluate": True})
    assert stored_report(store, settings, other, key) is None


def test_a_killed_training_goes_on_and_its_curve_is_whole(
    models: Path, settings: Settings, store: Store
) -> None:
    num_asked = 0

    def stop_in_training() -> bool:
        nonlocal num_asked
        found = store.trainings.list()
        num_asked += bool(found and found[0].curve)
        return num_asked > 2

    config = tiny_run(models, evaluate=False, export=False)
    with pytest.raises(SearchCancelledError):
        run(config, settings, store, should_stop=stop_in_training)
    (cancelled,) = store.runs.list()
    (begun,) = store.trainings.list()
    assert (cancelled.status, begun.status) == ("cancelled", "cancelled")
    assert begun.run_id == cancelled.id
    report = run(config, settings, store)
    assert report.skipped == ("data",)
    assert (report.checkpoint.state, report.evaluation) == ("candidate", None)
    assert [p.step for p in report.curve if p.greedy is not None] == [0, 3, 6]
    whole = run(config, settings_of(settings.home_dir / "other"), store)
    assert whole.training_key == report.training_key


def test_files_that_are_gone_are_made_again(models: Path, settings: Settings, store: Store) -> None:
    config = tiny_run(models, evaluate=False, export=False)
    first = run(config, settings, store)
    shutil.rmtree(settings.home_dir / "trainings")
    second = run(config, settings, store)
    assert second.skipped == ("data",)
    assert Path(second.checkpoint.folder).is_dir()
    assert second.checkpoint.content_hash == first.checkpoint.content_hash


def test_a_damaged_draft_is_trained_again_before_it_is_evaluated(
    models: Path, settings: Settings, store: Store
) -> None:
    first = run(tiny_run(models, evaluate=False, export=False), settings, store)
    weights = Path(first.checkpoint.folder) / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-64] + bytes(64))
    lines: list[str] = []
    config = tiny_run(models, export=False)
    second = run(config, settings, store, log=lines.append)
    assert second.skipped == ("data",)
    assert second.checkpoint.id == first.checkpoint.id
    assert weights.read_bytes() == whole
    assert folder_hash(Path(second.checkpoint.folder)) == second.checkpoint.content_hash
    text = "\n".join(lines)
    assert "does not hold the files of checkpoint 1 any more: they are gone or were changed" in text
    # What a user may have put there is not lost.
    (aside,) = weights.parent.parent.glob("draft-changed-*")
    assert f"it is {aside} now" in text


def test_a_home_that_moved_keeps_its_drafts(models: Path, settings: Settings, store: Store) -> None:
    config = tiny_run(models, evaluate=False, export=False)
    first = run(config, settings, store)
    moved = settings.home_dir.with_name("moved")
    shutil.move(settings.home_dir / "trainings", moved / "trainings")
    lines: list[str] = []
    second = run(config, settings_of(moved.parent, home=moved), store, log=lines.append)
    assert Path(second.checkpoint.folder).is_relative_to(moved)
    assert second.checkpoint.content_hash == first.checkpoint.content_hash
    assert second.outcome.draft_folder == Path(second.checkpoint.folder)
    assert any("holds this training, finished" in line for line in lines)
    assert store.checkpoints.find(first.checkpoint.content_hash) == second.checkpoint


def test_a_training_that_was_killed_before_its_draft_was_registered_says_so(
    models: Path, settings: Settings, store: Store
) -> None:
    config = tiny_run(models, evaluate=False, export=False)
    first = run(config, settings, store)
    with store.database.write() as connection:  # as kill -9 between the two writes leaves it
        connection.exec_driver_sql("DELETE FROM specdec_draft_checkpoints")
    lines: list[str] = []
    second = run(config, settings, store, log=lines.append)
    assert second.checkpoint.content_hash == first.checkpoint.content_hash
    named = f"draft {first.checkpoint.content_hash[:12]} was trained, but not registered"
    assert named in lines
    assert not any("gone" in line for line in lines)


def test_a_failing_export_costs_no_training(models: Path, settings: Settings, store: Store) -> None:
    def fail(*_given: object) -> Any:
        raise ExportError("logits differ")

    stages = Stages(export=fail)
    report = run(tiny_run(models), settings, store, stages=stages)
    assert report.state == "validated"
    assert report.notes == ("checkpoint 1 is not exported: logits differ",)
    stored = store.runs.get(report.run_id)
    assert stored is not None
    assert (stored.status, stored.summary["notes"]) == ("completed", list(report.notes))
    again = run(tiny_run(models), settings, store)
    assert again.skipped == ("data", "training", "evaluation")
    assert (again.notes, len(again.checkpoint.exports)) == ((), 1)


def test_a_damaged_export_is_written_again(models: Path, settings: Settings, store: Store) -> None:
    first = run(tiny_run(models), settings, store)
    (place,) = map(Path, first.checkpoint.exports)
    weights = place / "model.safetensors"
    whole = weights.read_bytes()
    for damage in (weights.unlink, lambda: weights.write_bytes(whole[:-4] + bytes(4))):
        damage()
        lines: list[str] = []
        again = run(tiny_run(models), settings, store, log=lines.append)
        assert again.checkpoint.exports == first.checkpoint.exports
        assert f"export {place} is not what was written: it is written again" in lines
        assert weights.read_bytes() == whole


def test_whoever_evaluates_a_draft_has_it_alone(
    models: Path, settings: Settings, store: Store
) -> None:
    first = run(tiny_run(models, evaluate=False, export=False), settings, store)
    name = first.checkpoint.content_hash
    lines: list[str] = []
    with FileLock(settings.home_dir / "drafts" / f".{name[:16]}.lock"):

        def stop() -> bool:
            return any("another process evaluates" in line for line in lines)

        with pytest.raises(SearchCancelledError, match="another process does the same"):
            run(tiny_run(models), settings, store, log=lines.append, should_stop=stop)
    assert run(tiny_run(models), settings, store).state == "validated"


def test_failed_cells_make_no_validated_draft_and_are_tried_again(
    models: Path, settings: Settings, store: Store
) -> None:
    def evaluate_half(*given: Any, **options: Any) -> Any:
        found = evaluate_draft(*given, **options)
        broken = found.cells[0].model_copy(
            update={"error": "WorkerLostError: died", "figures": None, "depths": (), "samples": ()}
        )
        return found.model_copy(update={"cells": (broken, *found.cells[1:])})

    stages = Stages(evaluate=evaluate_half, export=no_work)
    report = run(tiny_run(models), settings, store, stages=stages)
    assert report.checkpoint.reason == (
        "1 of 2 cells failed (WorkerLostError: died): the same command tries them again"
    )
    assert report.state == "candidate"
    again = run(tiny_run(models), settings, store)
    assert (again.skipped, again.state) == (("data", "training"), "validated")


def test_a_draft_that_decodes_otherwise_is_rejected_and_not_exported(
    models: Path, settings: Settings, store: Store
) -> None:
    config = tiny_run(models)

    def evaluate_broken(*given: Any, **options: Any) -> Any:
        found = evaluate_draft(*given, **options)
        cell = found.cells[0]
        broken = cell.depths[0].model_copy(
            update={"expected": 0.9, "realised": 0.1, "is_checked": True, "is_agreed": False}
        )
        cells = (cell.model_copy(update={"depths": (broken, *cell.depths[1:])}), *found.cells[1:])
        return found.model_copy(update={"cells": cells})

    lines: list[str] = []
    stages = Stages(evaluate=evaluate_broken, export=no_work)
    report = run(config, settings, store, stages=stages, log=lines.append)
    assert (report.state, report.is_good, report.checkpoint.exports) == ("rejected", False, ())
    assert "depth 1: expected 0.900, realised 0.100" in report.checkpoint.reason
    assert any("is not exported: accepts otherwise in decoding" in line for line in lines)


def test_two_phases_are_one_training_and_a_further_one_has_its_parent(
    models: Path, settings: Settings, store: Store
) -> None:
    quick = {"evaluate": False, "export": False, "num_epochs": 2}
    first = run(tiny_run(models, "wtv-grpo", **quick), settings, store)
    assert first.losses == "wtv/wtv+0.1grpo"
    assert {point.phase for point in first.curve} == {1, 2}
    draft = f"model:model=path:{first.checkpoint.folder}"
    second = run(tiny_run(models, "kl", **quick, draft=draft), settings, store)
    assert second.checkpoint.parent_hash == first.checkpoint.content_hash
    lineage = store.checkpoints.lineage(second.checkpoint.content_hash)
    assert [each.id for each in lineage] == [first.checkpoint.id]


def test_learning_rate_and_weight_can_be_sought_first(
    models: Path, settings: Settings, store: Store
) -> None:
    config = tiny_run(
        models,
        "eal",
        evaluate=False,
        export=False,
        sweep_trials=2,
        sweep_epochs=1,
        sweep_rates="0.001,0.01",
        sweep_weights="0.05,0.5",
    )
    report = run(config, settings, store)
    assert report.sweep is not None
    assert len(report.sweep["trials"]) == 2
    training = store.trainings.get(report.training_key)
    assert training is not None
    assert training.learning_rate == report.sweep["best"]["learning_rate"]
    assert training.loss == report.sweep["best"]["loss"]
    assert report.config == config


def test_what_cannot_work_is_refused_before_anything_is_stored(
    models: Path, settings: Settings, store: Store
) -> None:
    with pytest.raises(ConfigError, match="/nowhere"):
        run(tiny_run(models, target="path:/nowhere"), settings, store)
    assert store.runs.list() == []


def test_a_training_that_fails_says_why(models: Path, settings: Settings, store: Store) -> None:
    def fail(*given: Any, **options: Any) -> Any:
        train_draft(*given, **options)
        raise ConfigError("the draft does not fit")

    with pytest.raises(ConfigError, match="does not fit"):
        run(tiny_run(models), settings, store, stages=Stages(train=fail))
    (failed,) = store.runs.list()
    assert (failed.status, failed.error) == ("failed", "ConfigError: the draft does not fit")
    (begun,) = store.trainings.list()
    assert begun.status == "failed"
    assert json.dumps(begun.config)
    assert store.trainings.list(status="running") == []
