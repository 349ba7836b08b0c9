"""A store, settings and control folder of their own for every test of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from tests.table_evaluator import Control


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", cache=tmp_path / "cache", threads=1)


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store.open(settings.resolved_database_url) as opened:
        yield opened


@pytest.fixture
def control(tmp_path: Path) -> Control:
    folder = tmp_path / "control"
    folder.mkdir()
    return Control(folder)
