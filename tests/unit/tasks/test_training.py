"""One training in this process, from stored responses to a draft that decoding loads."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from specdec_core.config.settings import Settings
from specdec_core.config.training import TrainConfig
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.training.outcome import (
    StepMetrics,
    TrainingOutcome,
    ValidationMetrics,
    parse_event,
)
from tasks.training import thin, train_draft
from tasks.training_job import plan_job
from tests.tiny_training_data import settings_of, train_config, write_data, write_target

ROOT = Path(__file__).parents[3]


def config_of(**changes: Any) -> TrainConfig:
    """Return a short training in bfloat16, the default that other tests of trainings leave."""
    return train_config(precision="bfloat16", **changes)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    target = write_target(folder / "target")
    write_data(folder / "data", target, settings_of(folder))
    return folder


@pytest.fixture(scope="module")
def settings(home: Path) -> Settings:
    return settings_of(home)


@pytest.fixture(scope="module")
def trained(home: Path, settings: Settings) -> tuple[TrainingOutcome, list[object], list[str]]:
    events: list[object] = []
    lines: list[str] = []
    outcome = train_draft(
        config_of(),
        settings,
        home / "data",
        home / "run",
        is_inline=True,
        log=lines.append,
        progress=events.append,
    )
    return outcome, events, lines


def test_the_outcome_tells_what_was_done(
    home: Path, trained: tuple[TrainingOutcome, list[object], list[str]]
) -> None:
    outcome, events, lines = trained
    # 20 prompts to train on, 4 a step: 5 steps an epoch, 2 epochs.
    assert outcome.num_steps == 10
    assert [event.step for event in outcome.validations] == [0, 4, 8, 10]
    assert outcome.criterion == "greedy"
    best = max(one.greedy.accepted_tokens for one in outcome.validations)
    assert outcome.best.greedy.accepted_tokens == best
    assert outcome.start.step == 0
    assert outcome.last.loss < outcome.start.loss
    assert [step for step, _ in outcome.losses] == list(range(1, 11))
    assert outcome.tokens_per_s == pytest.approx(outcome.num_tokens / outcome.seconds)
    assert outcome.num_tokens > 2 * 20 * 10
    assert outcome.peak_bytes > 0 < outcome.estimate.total
    assert outcome.data_hash == "d" * 64
    assert outcome.template_hash == "t" * 64
    assert set(outcome.lineage) == {"configuration", "target", "start", "data", "tokenizer", "code"}
    written = (home / "run" / "metrics.jsonl").read_text().splitlines()
    assert [parse_event(line) for line in written] == events
    assert any(line.startswith("memory of one worker:") for line in lines)
    assert "24 samples" in " ".join(lines)


def test_the_draft_is_loaded_by_the_engine(
    trained: tuple[TrainingOutcome, list[object], list[str]], settings: Settings
) -> None:
    outcome = trained[0]
    resolved = resolve_model(f"path:{outcome.draft_folder}", settings.cache_dir)
    target = load_target(resolved, dtype="bfloat16", device="cpu", settings=settings)
    assert target.arch.num_layers == 2
    assert (outcome.draft_folder / "specdec_pruned.json").exists()


def test_a_finished_training_is_returned_and_another_refused(
    home: Path,
    settings: Settings,
    trained: tuple[TrainingOutcome, list[object], list[str]],
) -> None:
    lines: list[str] = []
    again = train_draft(
        config_of(), settings, home / "data", home / "run", is_inline=True, log=lines.append
    )
    assert again == trained[0]
    assert "finished" in lines[-1]
    other = config_of(learning_rate=1e-4)
    with pytest.raises(
        ConfigError, match=r"finished training of another configuration .*: `rm -r .*/run` makes"
    ):
        train_draft(other, settings, home / "data", home / "run", is_inline=True)


def test_a_lost_draft_is_trained_again_and_a_moved_one_found(
    home: Path,
    settings: Settings,
    trained: tuple[TrainingOutcome, list[object], list[str]],
) -> None:
    def again(name: str) -> tuple[TrainingOutcome, list[str], int]:
        lines: list[str] = []
        events: list[object] = []
        outcome = train_draft(
            config_of(),
            settings,
            home / "data",
            home / name,
            is_inline=True,
            log=lines.append,
            progress=events.append,
        )
        return outcome, lines, len(events)

    folder = shutil.copytree(home / "run", home / "moved")
    found, lines, num_events = again("moved")
    assert found == trained[0].model_copy(update={"draft_folder": folder / "draft"})
    assert num_events == 0

    (folder / "outcome.json").write_text("{")
    found, lines, num_events = again("moved")
    assert found == trained[0].model_copy(update={"draft_folder": folder / "draft"})
    assert num_events == 0
    assert any("outcome.json cannot be read" in line for line in lines)

    for lost in (folder / "draft").iterdir():
        lost.unlink()
    found, lines, num_events = again("moved")
    assert any("moved/draft is gone: the draft is trained again" in line for line in lines)
    assert num_events == len(trained[1])
    mine, theirs = (
        load_file(one.draft_folder / "model.safetensors") for one in (found, trained[0])
    )
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_killed_and_cancelled_trainings_continue_to_the_same_draft(
    home: Path,
    settings: Settings,
    trained: tuple[TrainingOutcome, list[object], list[str]],
) -> None:
    script = f"""
import os, signal
from pathlib import Path
from tasks.training import train_draft
from tests.tiny_training_data import settings_of
from tests.unit.tasks.test_training import config_of
home = Path({str(home)!r})
def die(event):
    if event.kind == "step" and event.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
train_draft(config_of(), settings_of(home), home / "data", home / "killed",
            is_inline=True, progress=die)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment)
    assert died.returncode == -signal.SIGKILL
    seen: list[StepMetrics | ValidationMetrics] = []
    with pytest.raises(SearchCancelledError, match="the same command continues"):
        train_draft(
            config_of(),
            settings,
            home / "data",
            home / "killed",
            is_inline=True,
            progress=seen.append,
            should_stop=lambda: len(seen) >= 3,
        )
    assert [event.step for event in seen] == [5, 6, 7]
    outcome = train_draft(config_of(), settings, home / "data", home / "killed", is_inline=True)
    assert [event.step for event in outcome.validations] == [0, 4, 8, 10]
    assert outcome.losses == trained[0].losses
    mine = load_file(outcome.draft_folder / "model.safetensors")
    theirs = load_file(trained[0].draft_folder / "model.safetensors")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_two_trainings_in_one_folder_are_refused(home: Path, settings: Settings) -> None:
    def start_another(event: object) -> None:
        with pytest.raises(ConfigError, match="another process trains in"):
            train_draft(config_of(), settings, home / "data", home / "twice", is_inline=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_draft(
            config_of(),
            settings,
            home / "data",
            home / "twice",
            is_inline=True,
            progress=start_another,
        )


def test_a_target_that_changed_is_refused(tmp_path: Path, home: Path) -> None:
    settings = settings_of(tmp_path)
    write_target(tmp_path / "target")
    write_data(tmp_path / "data", tmp_path / "target", settings)
    (tmp_path / "target" / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(ConfigError, match=r"chat template changed\): make the data again"):
        train_draft(config_of(), settings, tmp_path / "data", tmp_path / "run", is_inline=True)


@pytest.mark.parametrize(
    ("draft", "error"),
    [
        ({"kind": "medusa", "num_heads": 2, "num_blocks": 1}, None),
        ({"kind": "eagle", "version": 1}, None),
        ({"kind": "pruned", "layers": (0,), "vocab_size": 64}, None),
        ({"kind": "pruned", "layers": (0, 9)}, "cannot be kept"),
    ],
)
def test_other_kinds_of_drafts_train(
    home: Path, settings: Settings, tmp_path: Path, draft: dict[str, object], error: str | None
) -> None:
    config = config_of(draft=draft, num_epochs=1)
    if error is not None:
        with pytest.raises(ConfigError, match=error):
            train_draft(config, settings, home / "data", tmp_path / "run", is_inline=True)
        return
    outcome = train_draft(config, settings, home / "data", tmp_path / "run", is_inline=True)
    assert outcome.num_steps == 5
    assert outcome.last.loss < outcome.start.loss
    assert any(outcome.draft_folder.iterdir())


def test_a_start_that_was_damaged_is_cut_again(
    home: Path, settings: Settings, tmp_path: Path
) -> None:
    config = config_of(draft={"kind": "pruned", "layers": (0,)})
    run, lines = tmp_path / "run", list[str]()
    run.mkdir()
    job = plan_job(config, settings, home / "data", run, lines.append)
    assert job.start_folder is not None
    weights = job.start_folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-64] + bytes(64))
    again = plan_job(config, settings, home / "data", run, lines.append)
    assert (again.start_identity, again.identity) == (job.start_identity, job.identity)
    assert weights.read_bytes() == whole
    assert len([line for line in lines if line.startswith("draft cut from")]) == 2


def test_a_smaller_model_with_another_tokenizer_is_refused(
    home: Path, settings: Settings, tmp_path: Path
) -> None:
    folder = write_target(tmp_path / "draft", hidden_size=8)
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    ids = tokenizer["model"]["vocab"]
    ids["a"], ids["b"] = ids["b"], ids["a"]
    path.write_text(json.dumps(tokenizer))
    config = config_of(draft={"kind": "model", "model": f"path:{folder}"})
    with pytest.raises(ConfigError, match="has another tokenizer than"):
        train_draft(config, settings, home / "data", tmp_path / "run", is_inline=True)


def test_several_workers_need_ray(home: Path, settings: Settings, tmp_path: Path) -> None:
    config = config_of(num_workers=2)
    with pytest.raises(ConfigError, match="2 workers cannot train in one process"):
        train_draft(config, settings, home / "data", tmp_path / "run", is_inline=True)


def test_long_loss_curves_are_thinned_to_means() -> None:
    steps = [
        StepMetrics(
            step=n,
            num_steps=500,
            epoch=0,
            loss=float(n),
            terms={},
            learning_rate=0.1,
            gradient_norm=1.0,
            num_tokens=1,
            num_skipped=0,
            seconds=1.0,
        )
        for n in range(1, 501)
    ]
    points = thin(steps)
    assert len(points) == 167
    assert points[0] == (3, 2.0)
    assert points[-1] == (500, 499.5)
