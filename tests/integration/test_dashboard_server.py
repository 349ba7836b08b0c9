"""The dashboard as a server: errors, keys, scripts, addresses of others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dashboards.app import create_app
from dashboards.assets import asset_urls
from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import StoreError
from tests.integration.dashboard_client import ENVIRONMENT, make_client
from tests.unit.dashboards import examples


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    with make_client(store, tmp_path) as client:
        yield client


@pytest.mark.parametrize(
    ("url", "status", "text"),
    [
        ("/?profile=99", 404, "profile 99 is not stored"),
        ("/?run=nothing", 404, "run &#39;nothing&#39; is not stored"),
        ("/?profile=x", 422, "profile: Input should be a valid integer"),
        ("/dashboards/nothing.csv", 404, "choose one of profiles, runs, results, heldout"),
        ("/dashboards/front.csv", 404, "give run=ID"),
        ("/dashboards/static/nothing.js", 404, "there is no file"),
    ],
)
def test_errors_are_pages(client: TestClient, url: str, status: int, text: str) -> None:
    response = client.get(url)
    assert response.status_code == status
    assert response.headers["content-type"].startswith("text/html")
    assert text in response.text


def test_store_out_of_reach_is_a_503_page(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> Any:
        raise StoreError("database cannot be reached: start it")

    monkeypatch.setattr(type(store.database), "read", unreachable)
    for url in ("/", "/dashboards/profiles.csv"):
        response = client.get(url)
        assert response.status_code == 503
        assert "The result store cannot be read" in response.text
        assert "database cannot be reached: start it" in response.text


def test_scripts_are_served_once_and_compressed(client: TestClient) -> None:
    for url in asset_urls().values():
        response = client.get(url, headers={"Accept-Encoding": "gzip"})
        assert response.headers["content-encoding"] == "gzip"
        assert "immutable" in response.headers["cache-control"]
        plain = client.get(url, headers={"Accept-Encoding": "identity"})
        assert plain.content == response.content
        tag = {"If-None-Match": response.headers["etag"]}
        assert client.get(url, headers=tag).status_code == 304
    assert "plotly.js" in client.get(asset_urls()["plotly.js"]).text[:60]


def test_pages_ask_for_the_key_where_the_server_has_one(store: Store, tmp_path: Path) -> None:
    examples.seed(store)
    with make_client(store, tmp_path, api_key="s3cret") as client:
        refused = client.get("/")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
        assert "a1,a3" not in refused.text
        assert client.get("/dashboards/front.csv").status_code == 401
        assert client.get("/", auth=("me", "wrong")).status_code == 401
        assert client.get("/", headers={"Authorization": "Basic ???"}).status_code == 401
        for accepted in ({"auth": ("me", "s3cret")}, {"headers": {"X-API-Key": "s3cret"}}):
            assert "a1,a3" in client.get("/", **accepted).text
        assert client.get(asset_urls()["style.css"]).status_code == 200
    with make_client(store, tmp_path, api_key="") as client:
        assert client.get("/").status_code == 200


def test_addresses_of_other_services(store: Store, tmp_path: Path) -> None:
    profile = examples.seed(store)
    store.runs.update(profile.run_id, flow_run_id="0f-1")

    def page(environment: dict[str, str], mlflow: str | None) -> str:
        settings = Settings(home=tmp_path, api_key=None, mlflow_url=mlflow)
        app = create_app(settings, store=store, environment=environment)
        with TestClient(app) as client:
            return client.get("/").text

    html = page(ENVIRONMENT, None)
    assert 'href="http://127.0.0.1:4200/runs/flow-run/0f-1"' in html
    assert "/#/runs/" not in html
    inner = {
        "PREFECT_API_URL": "http://prefect:4200/api",
        "PREFECT_UI_URL": "http://localhost:4200/",
        "SPECDEC_MLFLOW_UI_URL": "http://localhost:5000",
    }
    html = page(inner, "http://mlflow:5000")
    assert 'href="http://localhost:4200/runs/flow-run/0f-1"' in html
    assert 'href="http://localhost:5000/#/runs/' in html
    assert "http://prefect" not in html
    assert "flow-run" not in page({}, None)


def test_password_of_the_optuna_database_is_not_shown(store: Store, tmp_path: Path) -> None:
    examples.seed(store)
    url = "postgresql://specdec:hunter2@db/optuna"
    with make_client(store, tmp_path, optuna_url=url) as client:
        html = client.get("/").text
    assert "hunter2" not in html
    assert "optuna-dashboard &#34;$SPECDEC_OPTUNA_URL&#34;" in html


def test_rest_api_is_served_beside_the_pages(client: TestClient) -> None:
    assert client.get("/api/v1/health").json()["status"] == "ok"
    assert "/" not in client.get("/openapi.json").json()["paths"]


def test_import_is_light(run_python: Callable[[str], str]) -> None:
    heavy = "torch", "ray", "prefect", "mlflow", "optuna", "tasks", "flows"
    code = f"import sys, dashboards.app; print(sorted({set(heavy)!r} & set(sys.modules)))"
    assert run_python(code) == "[]"


@pytest.fixture
def run_python() -> Callable[[str], str]:
    def run(code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    return run
