from pathlib import Path

import pytest
from pydantic import ValidationError

from specdec_core.config.settings import Settings


def test_databases_default_to_files_under_the_absolute_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    settings = Settings(home=Path("state"))
    assert settings.resolved_database_url == f"sqlite:///{tmp_path}/state/specdec.db"
    assert settings.resolved_optuna_url == f"sqlite:///{tmp_path}/state/optuna.db"
    assert settings.resolved_mlflow_url == f"sqlite:///{tmp_path}/state/mlflow.db"


def test_environment_sets_fields_and_an_empty_value_leaves_the_default(monkeypatch):
    monkeypatch.setenv("SPECDEC_DATABASE_URL", "postgresql://host/db")
    monkeypatch.setenv("SPECDEC_API_KEY", "")
    monkeypatch.setenv("SPECDEC_DATA", "")
    settings = Settings()
    assert settings.resolved_database_url == "postgresql://host/db"
    assert settings.api_key is None
    assert settings.data is None


def test_values_outside_their_range_are_refused():
    with pytest.raises(ValidationError, match="threads"):
        Settings(threads=0)
