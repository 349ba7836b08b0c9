"""A client of the dashboard over a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from dashboards.app import create_app
from db.store import Store
from specdec_core.config.settings import Settings

ENVIRONMENT = {"PREFECT_API_URL": "http://127.0.0.1:4200/api"}


def make_client(store: Store, tmp_path: Path, **settings: Any) -> TestClient:
    values = {"home": tmp_path, "api_key": None, "mlflow_url": "http://127.0.0.1:5000"}
    app = create_app(Settings(**(values | settings)), store=store, environment=ENVIRONMENT)
    return TestClient(app)
