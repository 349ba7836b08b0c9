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


@pytest.fixture
def ray_here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One local Ray for the test, small, that nobody but the test ends."""
    import ray

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
    )
    yield
    ray.shutdown()
