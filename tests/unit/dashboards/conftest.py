from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        yield store
