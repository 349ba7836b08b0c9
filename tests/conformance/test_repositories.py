"""The repository conformance suites, on SQLite and on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.lifecycle_conformance import LifecycleConformance
from tests.conformance.profile_conformance import ProfileConformance
from tests.conformance.repository_conformance import RepositoryConformance
from tests.conformance.training_conformance import TrainingConformance


class OnSqlite:
    """The default store."""

    @pytest.fixture
    def database_url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'new folder %41' / 'specdec.db'}"


class OnPostgres:
    """The store of a shared installation."""

    @pytest.fixture
    def database_url(self, postgres_url: str) -> str:
        return postgres_url


class TestRunsOnSqlite(OnSqlite, RepositoryConformance): ...


class TestProfilesOnSqlite(OnSqlite, ProfileConformance): ...


class TestLifecycleOnSqlite(OnSqlite, LifecycleConformance): ...


class TestTrainingOnSqlite(OnSqlite, TrainingConformance): ...


@pytest.mark.postgres
class TestRunsOnPostgres(OnPostgres, RepositoryConformance): ...


@pytest.mark.postgres
class TestProfilesOnPostgres(OnPostgres, ProfileConformance): ...


@pytest.mark.postgres
class TestLifecycleOnPostgres(OnPostgres, LifecycleConformance): ...


@pytest.mark.postgres
class TestTrainingOnPostgres(OnPostgres, TrainingConformance): ...
