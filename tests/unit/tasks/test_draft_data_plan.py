"""What is refused, or made good, before training data are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.training.manifest import MANIFEST, read_manifest
from tasks.draft_data_plan import open_folder, plan_data
from tests.draft_prompts import (
    data_config,
    questions,
    settings_of,
    write_chat_checkpoint,
    write_prompts,
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chat_checkpoint(tmp_path_factory.mktemp("model") / "chat")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_of(tmp_path)


def ignore(_line: str) -> None:
    """Take a line for nobody."""


def test_a_manifest_that_a_kill_left_half_written_is_in_nobodys_way(
    checkpoint: Path, settings: Settings, tmp_path: Path
) -> None:
    file = write_prompts(tmp_path / "p.jsonl", questions(4))
    plan = plan_data(data_config(checkpoint, file), settings, ignore)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / f".{MANIFEST}.4711").write_text('{"format_ver')
    assert open_folder(plan, folder) == plan.manifest
    assert read_manifest(folder).key == plan.manifest.key
    assert [path.name for path in folder.iterdir()] == [MANIFEST]


def test_more_logits_per_token_than_the_target_has_are_refused(
    checkpoint: Path, settings: Settings, tmp_path: Path
) -> None:
    file = write_prompts(tmp_path / "p.jsonl", questions(4))
    with pytest.raises(ConfigError, match=r"top_k 1024 asks for more logits per token than"):
        plan_data(data_config(checkpoint, file, top_k=1024), settings, ignore)


def test_a_prompt_may_not_have_the_name_of_another_ones_turn(
    checkpoint: Path, settings: Settings, tmp_path: Path
) -> None:
    rows = [{"id": "a", "turns": ["one", "two"]}, {"id": "a#1", "prompt": "three"}]
    file = write_prompts(tmp_path / "p.jsonl", rows)
    with pytest.raises(ConfigError, match=r"'a#1' has the name that turn 1 of prompt 'a' gets"):
        plan_data(data_config(checkpoint, file, max_turns=2), settings, ignore)
    assert plan_data(data_config(checkpoint, file), settings, ignore).manifest.num_prompts == 2
