"""Drafts before training on disk: used as they were left, made again where they were not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.start_files import made_once


class Maker:
    """Writes the same two files every time and counts how often."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, folder: Path) -> None:
        self.num_calls += 1
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(range(256)))


def zero(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(bytes(256))


def truncate(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def add(folder: Path) -> None:
    (folder / "other.json").write_text("{}")


def lose_mark(folder: Path) -> None:
    """As a maker leaves it that was killed before the hash was written."""
    folder.with_name(f"{folder.name}.sha256").unlink()


def garble_mark(folder: Path) -> None:
    folder.with_name(f"{folder.name}.sha256").write_bytes(b"\xff\xfe")


def test_what_is_whole_is_made_once(tmp_path: Path) -> None:
    maker, lines = Maker(), list[str]()
    for _ in range(2):
        assert made_once(tmp_path / "start", maker, lines.append) == tmp_path / "start"
    assert (maker.num_calls, lines) == (1, [])


@pytest.mark.parametrize("damage", [zero, truncate, empty, add, lose_mark, garble_mark])
def test_what_was_damaged_is_made_again_and_said(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    maker, lines = Maker(), list[str]()
    folder = made_once(tmp_path / "start", maker, lines.append)
    damage(folder)
    made_once(folder, maker, lines.append)
    assert (folder / "model.safetensors").read_bytes() == bytes(range(256))
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert lines == [f"{folder} does not have the files that were left there: it is made again"]
    made_once(folder, maker, lines.append)
    assert maker.num_calls == 2
