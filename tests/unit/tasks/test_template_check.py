"""Templates of training texts against those that serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.config.settings import Settings
from specdec_core.drafts.provenance_file import (
    PROVENANCE_FILE,
    read_provenance,
    write_provenance,
)
from specdec_core.drafts.specs import Provenance
from specdec_core.errors import ConfigError
from specdec_core.models.loading import load_target, load_tokenizer
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.masks import serving_hash
from tasks.prepare import prepare
from tasks.template_check import TemplateCheck, check_template
from tests.learned_drafts import write_draft


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    room = {"max_position_embeddings": 2048}
    write_tiny_checkpoint(root / "target", **room)
    write_tiny_checkpoint(root / "draft", num_layers=1, **room)
    return root


def served(models: Path) -> str:
    return serving_hash(load_tokenizer(models / "target"), "base", ("math", "qa"))


def test_a_request_with_a_draft_of_another_template_warns_with_both_hashes(
    models: Path, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    target, drafter = f"path:{models / 'target'}", f"draft-model:model=path:{models / 'draft'}"
    hashes = ("ab" * 32, served(models))
    for trained in hashes:
        write_provenance(
            models / "draft", Provenance(template_hash=trained, domains=("math", "qa"))
        )
        caplog.clear()
        workload = prepare(target, "qa", None, "float32", settings)
        items = [workload.suite.items[0].id]
        workload.request(skip="", drafter=drafter, item_ids=items, max_new_tokens=4)
        is_warned = f"of template {hashes[0][:12]}.., but {target} is asked with" in caplog.text
        assert is_warned == (hashes[1][:12] in caplog.text) == (trained == hashes[0])


def test_learned_drafters_say_it_in_their_manifest(
    models: Path, settings: Settings, tmp_path: Path
) -> None:
    reference = f"path:{models / 'target'}"
    model = resolve_model(reference, settings.cache_dir)
    write_draft(tmp_path, "medusa", load_target(model, dtype="float32", device="cpu"))
    assert read_provenance(tmp_path) == Provenance()
    # One that does not say what it was trained on is not judged.
    assert check_template(tmp_path, reference, settings) == TemplateCheck(None, "")


def test_a_model_from_elsewhere_says_nothing(models: Path, settings: Settings) -> None:
    reference = f"path:{models / 'target'}"
    assert read_provenance(models / "target") is None
    assert not check_template(models / "target", reference, settings).differs


def test_a_damaged_note_is_named(tmp_path: Path) -> None:
    (tmp_path / PROVENANCE_FILE).write_text("{")
    with pytest.raises(ConfigError, match="does not say where the draft comes from"):
        read_provenance(tmp_path)
