"""How the REST API says no: problem documents with a machine code."""

from __future__ import annotations

import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient

from db.api.app import create_app
from db.schemas import SkipProfile
from db.store import Store
from specdec_core.config.settings import Settings
from tests.integration.problems import problem

RESOLVE = "/api/v1/profiles/resolve?target=pypi:gemma3-270m&domain=translation"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("profiles/99", "profile-not-found"),
        ("profiles/99/history", "profile-not-found"),
        ("runs/x", "run-not-found"),
        ("runs/x/evaluations", "run-not-found"),
        ("evaluations/x", "evaluation-not-found"),
        ("evaluations/x/samples", "evaluation-not-found"),
        ("nothing", "not-found"),
    ],
)
def test_unknown_names_are_404(client: TestClient, path: str, code: str) -> None:
    problem(client.get(f"/api/v1/{path}"), 404, code)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("profiles?limit=0", "limit"),
        ("profiles?limit=501", "limit"),
        ("profiles?offset=-1", "offset"),
        ("profiles?status=odd", "status"),
        ("profiles?domian=math", "domian"),
        ("profiles/abc", "profile_id"),
        ("profiles/0", "profile_id"),
        (f"profiles/{2**40}", "profile_id"),
        ("profiles/resolve?domain=math", "target"),
        ("profiles/resolve?domain=&target=x", "domain"),
        ("profiles/resolve?domain=math&target=x&dtype=int8", "dtype"),
        ("runs?status=active", "status"),
        ("runs/x/evaluations?level=1", "level"),
        ("benchmarks?limit=x", "limit"),
    ],
)
def test_bad_parameters_are_422_and_named(client: TestClient, path: str, field: str) -> None:
    body = problem(client.get(f"/api/v1/{path}"), 422, "bad-parameter")
    assert [error["field"] for error in body["errors"]] == [field]
    assert field in body["detail"]


def test_an_unknown_drafter_is_422(client: TestClient) -> None:
    for path in ("/api/v1/profiles?drafter=magic", f"{RESOLVE}&drafter=magic"):
        body = problem(client.get(path), 422, "bad-parameter")
        assert "drafter 'magic' is unknown" in body["detail"]


def test_the_api_is_read_only(client: TestClient) -> None:
    problem(client.post("/api/v1/profiles", json={}), 405, "method-not-allowed")


def test_api_key_is_asked_for_where_one_is_set(store: Store, published: SkipProfile) -> None:
    app = create_app(Settings(api_key="schlüssel"), store=store)
    with TestClient(app) as client:
        missing = client.get(RESOLVE)
        problem(missing, 401, "api-key-missing")
        assert missing.headers["www-authenticate"] == "ApiKey"
        problem(client.get(RESOLVE, headers={"X-API-Key": "x"}), 401, "api-key-wrong")
        assert client.get("/api/v1/health").status_code == 200
    with TestClient(create_app(Settings(api_key="key"), store=store)) as client:
        assert client.get(RESOLVE, headers={"X-API-Key": "key"}).status_code == 200


def test_a_lost_database_is_503(client: TestClient, store: Store) -> None:
    with store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE specdec_skip_profiles")
    body = problem(client.get("/api/v1/profiles"), 503, "store-unavailable")
    assert "has lost tables of its schema" in body["detail"]


def test_an_unexpected_error_is_a_problem_without_details(store: Store) -> None:
    router = APIRouter()

    @router.get("/broken")
    def broken() -> None:
        raise ZeroDivisionError("secret")

    app = create_app(Settings(), store=store, routers=[router])
    response = TestClient(app, raise_server_exceptions=False).get("/broken")
    assert "secret" not in problem(response, 500, "internal")["detail"]
