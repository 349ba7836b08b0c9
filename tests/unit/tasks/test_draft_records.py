"""What a draft is known by: its files, and never the lack of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.errors import ConfigError
from tasks.draft_records import holds_draft
from tasks.training_keys import folder_hash


def test_a_folder_without_files_has_no_hash(tmp_path: Path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)
    for name in ("empty", "missing"):
        with pytest.raises(ConfigError, match=rf"/{name} holds no files: bring them back"):
            folder_hash(tmp_path / name)
        # SHA-256 of nothing, which such a folder was once known by.
        assert not holds_draft(tmp_path / name, "e3b0c44298fc1c149afbf4c8996fb924")


def test_names_and_contents_count_and_the_place_does_not(tmp_path: Path) -> None:
    for folder, name, text in (("a", "x", "1"), ("b", "x", "1"), ("c", "y", "1"), ("d", "x", "2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    found = [folder_hash(tmp_path / folder) for folder in "abcd"]
    assert found[0] == found[1]
    assert len(set(found)) == 3
    assert holds_draft(tmp_path / "b", found[0])
    assert not holds_draft(tmp_path / "d", found[0])
