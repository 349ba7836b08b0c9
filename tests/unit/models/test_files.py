"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.errors import StoreError
from specdec_core.models.files import write_whole


def test_a_file_that_cannot_be_written_is_said_in_words_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("a file, not a folder")
    for place in ("taken", "file/below", "missing/below"):
        with pytest.raises(StoreError, match=rf"{place} cannot be written .* run the same command"):
            write_whole(tmp_path / place, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]
    write_whole(tmp_path / "file", "text")
    assert (tmp_path / "file").read_text() == "text"
