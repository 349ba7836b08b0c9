"""A store and a REST client of it, for integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from db.api.app import create_app
from db.schemas import SkipProfile
from db.store import Store
from specdec_core.config.settings import Settings
from tests.integration import store_examples as examples


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'specdec.db'}") as store:
        yield store


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(api_key=None), store=store)) as client:
        yield client


@pytest.fixture
def published(store: Store) -> SkipProfile:
    return store.profiles.publish(examples.profile(examples.make_run(store).id))
