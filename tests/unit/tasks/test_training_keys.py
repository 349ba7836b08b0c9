"""What an evaluation of a draft is known by: everything that decides what it measures."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

import pytest

from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.settings import Settings
from tasks.training_keys import evaluation_key
from tests.draft_prompts import settings_of, write_chat_checkpoint


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_chat_checkpoint(tmp_path / "target")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def key_of(target: Path, settings: Settings, content_hash: str = "d", **changes: object) -> str:
    asked = {"target": f"path:{target}", "domains": ("qa",), "num_items": 2, **changes}
    return evaluation_key(DraftEvaluationConfig.model_validate(asked), content_hash, settings)


def test_an_evaluation_on_other_prompts_or_another_machine_is_another_one(
    target: Path, settings: Settings, tmp_path: Path
) -> None:
    packaged = key_of(target, settings)
    assert key_of(target, settings) == packaged
    assert key_of(target, settings, "other draft") != packaged
    assert key_of(target, settings, num_items=3) != packaged
    for name, value in {"device": "cuda", "native": True, "dtype": "bfloat16"}.items():
        assert key_of(target, settings.model_copy(update={name: value})) != packaged, name

    # The same prompts in a folder of the user's, then others in their place.
    with resources.as_file(resources.files("specdec_core.data") / "builtin") as builtin:
        shutil.copytree(builtin, tmp_path / "data")
    suite = tmp_path / "data" / "qa.jsonl"
    own = settings.model_copy(update={"data": tmp_path / "data"})
    suite.write_text(suite.read_text().replace("Buda", "Bonn"))
    changed = key_of(target, own)
    assert changed != packaged
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "data", elsewhere)
    assert key_of(target, settings.model_copy(update={"data": elsewhere})) == changed


def test_an_evaluation_on_another_target_in_the_same_folder_is_another_one(
    target: Path, settings: Settings
) -> None:
    before = key_of(target, settings)
    write_chat_checkpoint(target, seed=5)
    assert key_of(target, settings) != before
