"""Draft models on their way into a request and into a worker: what is checked, and what counts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.records import EvaluationResult
from tasks.evaluator import ModelEvaluator
from tasks.prepare import Workload, prepare


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a target and a draft model of another family."""
    root = tmp_path_factory.mktemp("models")
    room = {"max_position_embeddings": 2048}
    write_tiny_checkpoint(root / "target", "llama", seed=1, **room)
    write_tiny_checkpoint(root / "draft", "qwen3", seed=2, num_layers=1, **room)
    return root


@pytest.fixture
def workload(models: Path, settings: Settings) -> Workload:
    return prepare(f"path:{models / 'target'}", "qa", None, "float64", settings)


def request_for(workload: Workload, drafter: str, skip: str = ""):
    items = [item.id for item in workload.suite.items[:2]]
    return workload.request(skip=skip, drafter=drafter, item_ids=items, max_new_tokens=12)


def test_the_key_names_the_drafts_content_and_not_its_place(
    models: Path, tmp_path: Path, workload: Workload, settings: Settings
) -> None:
    first = request_for(workload, f"draft-model:model=path:{models / 'draft'}")
    identity = resolve_model(f"path:{models / 'draft'}", settings.cache_dir).identity
    assert first.drafter_data == identity
    shutil.copytree(models / "draft", tmp_path / "copy")
    copied = request_for(workload, f"draft-model:model=path:{tmp_path / 'copy'}")
    assert copied.key == first.key
    write_tiny_checkpoint(tmp_path / "other", "qwen3", seed=3, num_layers=1)
    other = request_for(workload, f"draft-model:model=path:{tmp_path / 'other'}")
    assert other.key != first.key
    longer = request_for(workload, f"draft-model:model=path:{models / 'draft'},gamma=3")
    assert longer.key != first.key


def test_another_tokenizer_is_refused_before_any_weights_are_read(
    models: Path, tmp_path: Path, workload: Workload
) -> None:
    """The draft's weights are no weights at all, which nobody gets to see."""
    shutil.copytree(models / "draft", tmp_path / "swapped")
    file = tmp_path / "swapped" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["k"], vocabulary["q"] = vocabulary["q"], vocabulary["k"]
    file.write_text(json.dumps(content))
    (tmp_path / "swapped" / "model.safetensors").write_bytes(b"nothing")
    for method in ("draft-model", "draft-tree"):
        with pytest.raises(ConfigError, match=r"has another tokenizer than path:.*token 'k' is id"):
            request_for(workload, f"{method}:model=path:{tmp_path / 'swapped'}")


@pytest.mark.parametrize(
    ("drafter", "skip", "message"),
    [
        ("draft-model:model=smollm", "", "model reference 'smollm' has no scheme"),
        ("draft-model:model=path:/nowhere", "", "/nowhere has no config.json"),
        ("layer-skip:skip=1,a9", "", "skip unit a9 names layer 9"),
        ("layer-skip:skip=1,a0", "m0,2", "leaves out every layer"),
    ],
)
def test_what_cannot_draft_is_refused_when_it_is_asked_for(
    workload: Workload, drafter: str, skip: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        request_for(workload, drafter, skip)


def test_a_worker_loads_each_draft_once_and_decodes_with_it(
    models: Path, workload: Workload, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdec_core.models import loading

    loaded = []
    load_target = loading.load_target

    def counted(model, **options):
        loaded.append(Path(model.folder).name)
        return load_target(model, **options)

    monkeypatch.setattr(loading, "load_target", counted)
    evaluator = ModelEvaluator(settings)
    plain = evaluator.run(request_for(workload, "none"), lambda: False)
    assert isinstance(plain, EvaluationResult)
    for drafter in (
        f"draft-model:model=path:{models / 'draft'}",
        f"draft-tree:model=path:{models / 'draft'},branching=3/2/1",
        f"draft-model:model=path:{models / 'target'},gamma=3",
        "layer-skip:skip=1,gamma=3",
        "synthetic:acceptance=0.9/0.5",
    ):
        result = evaluator.run(request_for(workload, drafter), lambda: False)
        assert isinstance(result, EvaluationResult)
        outputs = [sample.token_ids for sample in result.samples]
        assert outputs == [sample.token_ids for sample in plain.samples]
        assert result.summary.num_drafted > 0
    # The target drafts for itself with the weights it has.
    assert loaded == ["target", "draft"]


def test_a_draft_that_changed_since_it_was_asked_for_is_refused(
    models: Path, tmp_path: Path, workload: Workload, settings: Settings
) -> None:
    shutil.copytree(models / "draft", tmp_path / "draft")
    request = request_for(workload, f"draft-model:model=path:{tmp_path / 'draft'}")
    write_tiny_checkpoint(tmp_path / "draft", "qwen3", seed=4, num_layers=1)
    with pytest.raises(ConfigError, match=r"draft model path:.* has identity \w{12} here, but"):
        ModelEvaluator(settings).run(request, lambda: False)
