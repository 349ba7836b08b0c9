"""Training data by several model workers on real Ray: the same samples as in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.config.draft_data import DataConfig
from specdec_core.training.data import DraftData
from tasks import draft_data_plan
from tasks.draft_data import DataProgress, make_draft_data
from tests import run_fixtures
from tests.draft_prompts import (
    data_config,
    questions,
    settings_of,
    write_chat_checkpoint,
    write_prompts,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ray_here = run_fixtures.ray_here


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """Ten prompts in five shards."""
    monkeypatch.setattr("specdec_core.training.manifest.SHARD_PROMPTS", 2)
    monkeypatch.setattr(draft_data_plan, "SHARD_PROMPTS", 2)
    checkpoint = write_chat_checkpoint(tmp_path / "model")
    prompts = write_prompts(tmp_path / "p.jsonl", questions(10))
    return data_config(checkpoint, prompts, num_prompts=10)


@pytest.mark.usefixtures("ray_here")
def test_two_workers_make_what_one_process_makes(config: DataConfig, tmp_path: Path) -> None:
    seen: list[DataProgress] = []
    here, inline = make_draft_data(config, settings_of(tmp_path / "a"), is_inline=True)
    settings = settings_of(tmp_path / "b", num_workers=2)
    there, shared = make_draft_data(config, settings, progress=seen.append)
    assert inline.key == shared.key
    assert DraftData.open(here).samples == DraftData.open(there).samples
    assert [event.num_done for event in seen] == [1, 2, 3, 4, 5]
    assert shared.counts is not None
    assert shared.counts.num_response_tokens == seen[-1].num_response_tokens
