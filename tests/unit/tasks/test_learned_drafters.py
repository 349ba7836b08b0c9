"""Trained drafters on their way into a request and into a worker: what is checked, what counts."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from specdec_core.config.settings import Settings
from specdec_core.config.training import EagleDraft, MedusaDraft
from specdec_core.drafts.building import new_trainable
from specdec_core.drafts.manifest import read_draft_manifest
from specdec_core.drafts.specs import Provenance
from specdec_core.errors import ConfigError
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.records import EvaluationResult
from tasks.evaluator import ModelEvaluator
from tasks.prepare import Workload, prepare

SHAPES = {
    "eagle": EagleDraft(),
    "eagle3": EagleDraft(version=3, num_steps=2),
    "medusa": MedusaDraft(num_heads=2),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a target, another one of its sizes, and an untrained drafter of each kind."""
    root = tmp_path_factory.mktemp("models")
    room = {"max_position_embeddings": 2048}
    write_tiny_checkpoint(root / "target", "llama", seed=1, **room)
    write_tiny_checkpoint(root / "other", "llama", seed=2, **room)
    target = resolve_model(f"path:{root / 'target'}", root / "cache")
    for name, shape in SHAPES.items():
        new_trainable(shape, target, seed=1).save(root / name)
    return root


@pytest.fixture
def workload(models: Path, settings: Settings) -> Workload:
    return prepare(f"path:{models / 'target'}", "qa", None, "float64", settings)


def request_for(workload: Workload, drafter: str, skip: str = ""):
    items = [item.id for item in workload.suite.items[:2]]
    return workload.request(skip=skip, drafter=drafter, item_ids=items, max_new_tokens=12)


def test_the_key_names_the_drafters_content_and_not_its_place(
    models: Path, tmp_path: Path, workload: Workload
) -> None:
    first = request_for(workload, f"eagle:model={models / 'eagle'}")
    assert first.drafter_data == read_draft_manifest(models / "eagle").identity
    shutil.copytree(models / "eagle", tmp_path / "copy")
    assert request_for(workload, f"eagle:model={tmp_path / 'copy'}").key == first.key
    assert request_for(workload, f"eagle:model={models / 'eagle3'}").key != first.key
    assert request_for(workload, f"eagle:model={models / 'eagle'},top_k=3").key != first.key


@pytest.mark.parametrize(
    ("drafter", "message"),
    [
        ("eagle:model=/nowhere", "no learned drafter in /nowhere"),
        ("eagle:model={models}/target", "does not describe a learned drafter"),
        ("medusa:model={models}/eagle", "holds a drafter of kind 'eagle', not 'medusa': use eagle"),
    ],
)
def test_what_cannot_draft_is_refused_when_it_is_asked_for(
    models: Path, workload: Workload, drafter: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        request_for(workload, drafter.format(models=models))


def test_a_drafter_of_another_target_is_refused_unless_asked_for(
    models: Path, settings: Settings
) -> None:
    workload = prepare(f"path:{models / 'other'}", "qa", None, "float64", settings)
    drafter = f"eagle:model={models / 'eagle'}"
    with pytest.raises(ConfigError, match=r"was trained for path:.*target .*other_target=true"):
        request_for(workload, drafter)
    forced = request_for(workload, f"{drafter},other_target=true")
    result = ModelEvaluator(settings).run(forced, lambda: False)
    assert isinstance(result, EvaluationResult)
    assert result.summary.num_drafted > 0


@pytest.mark.parametrize("skip", ["", "1"])
def test_a_worker_decodes_with_it_what_the_target_writes_alone(
    models: Path, workload: Workload, settings: Settings, skip: str
) -> None:
    evaluator = ModelEvaluator(settings)
    plain = evaluator.run(request_for(workload, "none", skip), lambda: False)
    assert isinstance(plain, EvaluationResult)
    for drafter in (
        f"eagle:model={models / 'eagle'}",
        f"eagle:model={models / 'eagle3'},shape=chain",
        f"medusa:model={models / 'medusa'}",
    ):
        result = evaluator.run(request_for(workload, drafter, skip), lambda: False)
        assert isinstance(result, EvaluationResult)
        outputs = [sample.token_ids for sample in result.samples]
        assert outputs == [sample.token_ids for sample in plain.samples]
        assert result.summary.num_drafted > 0


def test_a_drafter_that_changed_since_it_was_asked_for_is_refused(
    models: Path, tmp_path: Path, workload: Workload, settings: Settings
) -> None:
    shutil.copytree(models / "eagle", tmp_path / "eagle")
    request = request_for(workload, f"eagle:model={tmp_path / 'eagle'}")
    shutil.rmtree(tmp_path / "eagle")
    shutil.copytree(models / "eagle3", tmp_path / "eagle")
    with pytest.raises(
        ConfigError, match=r"asks for drafter_data \w{12}.., but \w{12}.. is loaded"
    ):
        ModelEvaluator(settings).run(request, lambda: False)


def test_damage_is_found_before_a_worker_is_asked(
    models: Path, tmp_path: Path, workload: Workload
) -> None:
    shutil.copytree(models / "eagle", tmp_path / "eagle")
    path = tmp_path / "eagle" / "config.json"
    document = json.loads(path.read_text())
    document["weights_hash"] = "0" * 64
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"has hash \w{12}.., but config.json says 000000000000"):
        request_for(workload, f"eagle:model={tmp_path / 'eagle'}")


def test_another_template_than_the_training_texts_had_is_said(
    models: Path, tmp_path: Path, workload: Workload, caplog: pytest.LogCaptureFixture
) -> None:
    target = resolve_model(f"path:{models / 'target'}", models / "cache")
    note = Provenance(template_hash="f" * 64, domains=("qa",))
    new_trainable(EagleDraft(), target, provenance=note).save(tmp_path / "noted")
    with caplog.at_level(logging.WARNING):
        request_for(workload, f"eagle:model={tmp_path / 'noted'}")
    assert "was trained on texts of template ffffffffffff" in caplog.text
