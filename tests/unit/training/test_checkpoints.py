"""Checkpoints: whole or ignored, the newest two and the best, and refusals."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from specdec_core.errors import ConfigError, StoreError
from specdec_core.training.checkpoints import CheckpointFolder, Progress, TrainingState, check_disk


def state(step: int, *, best_step: int = 0, size: int = 4) -> TrainingState:
    weights = {"w": torch.full((size,), float(step))}
    moments = {"w": {"step": torch.tensor(float(step)), "exp_avg": torch.zeros(size)}}
    progress = Progress(step=step, best_step=best_step, best_value=0.5)
    return TrainingState(progress, weights, moments, {"w": torch.ones(size)})


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path / "c", "same")
    assert checkpoints.load() is None
    checkpoints.save(state(5, best_step=5))
    loaded = CheckpointFolder(tmp_path / "c", "same").load()
    assert loaded is not None
    assert loaded.progress == Progress(step=5, best_step=5, best_value=0.5)
    assert torch.equal(loaded.weights["w"], torch.full((4,), 5.0))
    assert float(loaded.moments["w"]["step"]) == 5.0
    assert torch.equal(loaded.reference["w"], torch.ones(4))


def test_the_newest_two_and_the_best_are_kept(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, "same")
    for step, best in ((0, 0), (5, 5), (10, 5), (15, 5), (20, 5)):
        checkpoints.save(state(step, best_step=best))
    assert kept(tmp_path) == ["step-00000005", "step-00000015", "step-00000020"]
    best = checkpoints.load(5)
    assert best is not None
    assert best.progress.step == 5
    checkpoints.save(state(30, best_step=30))
    checkpoints.save(state(35, best_step=30))
    assert kept(tmp_path) == ["step-00000030", "step-00000035"]


def test_without_the_newest_the_one_before_has_its_best(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, "same")
    for step, best in ((5, 5), (10, 5), (15, 5), (20, 20)):
        newest = checkpoints.save(state(step, best_step=best))
    (newest / "manifest.json").unlink()
    before = checkpoints.load()
    assert before is not None
    assert (before.progress.step, before.progress.best_step) == (15, 5)
    assert checkpoints.load(5) is not None


@pytest.mark.parametrize("damage", ["no manifest", "cut short", "unfinished name"])
def test_half_written_checkpoints_are_ignored_and_replaced(tmp_path: Path, damage: str) -> None:
    checkpoints = CheckpointFolder(tmp_path, "same")
    checkpoints.save(state(5))
    newest = checkpoints.save(state(10))
    if damage == "no manifest":
        (newest / "manifest.json").unlink()
    elif damage == "cut short":
        data = (newest / "state.pt").read_bytes()
        (newest / "state.pt").write_bytes(data[:-1])
    else:
        newest.rename(tmp_path / ".step-00000010.part")
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded.progress.step == 5
    checkpoints.save(state(10))
    assert kept(tmp_path) == ["step-00000005", "step-00000010"]
    again = checkpoints.load()
    assert again is not None
    assert again.progress.step == 10


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    CheckpointFolder(tmp_path, "a" * 64).save(state(5))
    with pytest.raises(ConfigError, match=r"another configuration or other data.*or remove "):
        CheckpointFolder(tmp_path, "b" * 64)


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = CheckpointFolder(tmp_path, "same").save(state(5)) / "state.pt"
    path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(ConfigError, match=r"step-00000005 is damaged .*remove it"):
        CheckpointFolder(tmp_path, "same").load()


def test_a_state_with_other_bytes_is_not_resumed_from(tmp_path: Path) -> None:
    path = CheckpointFolder(tmp_path, "same").save(state(5, size=1000)) / "state.pt"
    content = bytearray(path.read_bytes())
    at = content.index(torch.full((8,), 5.0).numpy().tobytes())  # within a tensor
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not those that were written"):
        CheckpointFolder(tmp_path, "same").load()


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, "same")
    checkpoints.save(state(5))
    with (
        files_of_at_most(20_000),
        pytest.raises(StoreError, match=r"step-00000010 cannot be written.*free space"),
    ):
        checkpoints.save(state(10, size=100_000))
    assert kept(tmp_path) == ["step-00000005"]
    loaded = checkpoints.load()
    assert loaded is not None
    assert loaded.progress.step == 5


def test_too_small_a_disk_is_refused_before_the_start(tmp_path: Path) -> None:
    check_disk(tmp_path / "not" / "there", 1000)
    with pytest.raises(ConfigError, match=r"checkpoints need \d+ MiB more .*free are \d+ MiB"):
        check_disk(tmp_path / "not" / "there", 2**60)
