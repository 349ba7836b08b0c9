"""The REST API over a real store: health, runs, evaluations, benchmarks, the application."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi import APIRouter, Request
from fastapi.testclient import TestClient

from db.api.app import create_app
from db.cells import CellDifference, Certificate
from db.models import SCHEMA_REVISION
from db.schemas import EvaluationRow, RunRecord, SkipProfile
from db.store import Store
from specdec_core.config.drafters import NoDrafter
from specdec_core.config.settings import Settings
from specdec_core.records import SampleResult
from tests.integration import store_examples as examples
from tests.integration.problems import problem
from tests.integration.test_api_profiles import RESOLVE


def test_health_names_database_schema_and_version(client: TestClient) -> None:
    body = client.get("/api/v1/health").json()
    assert body.pop("version")
    assert body == {"status": "ok", "database": "sqlite", "schema_revision": SCHEMA_REVISION}


def test_run_traces_back_to_code_data_environment_and_command(
    client: TestClient, store: Store
) -> None:
    run = examples.make_run(store)
    asked = examples.request()
    store.evaluations.put(asked, examples.result(asked))
    store.runs.link(run.id, asked.key, "candidate", 1)
    body = client.get(f"/api/v1/runs/{run.id}").json()
    assert body["provenance"] == {
        "commit": "0123abcd",
        "environment": {"python": "3.11.7"},
        "command": ["specdec", "search", "translation"],
    }
    assert body["config"] == {"beam": 4}
    assert (body["suite_hashes"], body["num_evaluations"]) == (["s" * 64], 1)


def test_runs_are_listed(client: TestClient, store: Store) -> None:
    runs = [examples.make_run(store, kind=kind) for kind in ("tss-search", "benchmark")]
    body = client.get("/api/v1/runs?kind=benchmark&status=running").json()
    assert [RunRecord.model_validate(item) for item in body["items"]] == [runs[1]]
    assert client.get("/api/v1/runs?limit=1").json()["total"] == 2


def test_run_evaluations_in_order(client: TestClient, store: Store) -> None:
    run = examples.make_run(store)
    keys = []
    for level, skip in ((None, ""), (1, "a3"), (2, "a3,a4")):
        asked = examples.request(skip=skip)
        keys.append(asked.key)
        store.evaluations.put(asked, examples.result(asked))
        store.runs.link(run.id, asked.key, "candidate" if skip else "dense", level)
    body = client.get(f"/api/v1/runs/{run.id}/evaluations?limit=2&offset=1").json()
    assert body["total"] == 3
    assert [(item["role"], item["level"]) for item in body["items"]] == [
        ("candidate", 1),
        ("candidate", 2),
    ]
    rows = [EvaluationRow.model_validate(item["evaluation"]) for item in body["items"]]
    assert [row.key for row in rows] == keys[1:]


def test_evaluation_and_its_token_ids(client: TestClient, store: Store) -> None:
    run = examples.make_run(store)
    asked = examples.request()
    store.evaluations.put(asked, examples.result(asked))
    store.runs.link(run.id, asked.key, "candidate", 1)
    body = client.get(f"/api/v1/evaluations/{asked.key}").json()
    assert (body["status"], body["run_ids"]) == ("done", [run.id])
    assert body["summary"]["acceptance_length"] == 3.0
    page = client.get(f"/api/v1/evaluations/{asked.key}/samples?limit=1&offset=1").json()
    assert page["total"] == 2
    assert page["items"][0]["token_ids"] == [3, 1, 4, 1, 5, 9, 2, 6, 262143]
    assert SampleResult.model_validate_json(json.dumps(page["items"][0])) == examples.sample("de-2")


def test_failed_evaluation_has_a_reason_and_no_samples(client: TestClient, store: Store) -> None:
    asked = examples.request()
    store.evaluations.fail(asked, "MeasurementError", "logits are NaN")
    body = client.get(f"/api/v1/evaluations/{asked.key}").json()
    assert (body["status"], body["error_type"], body["error"], body["summary"]) == (
        "failed",
        "MeasurementError",
        "logits are NaN",
        None,
    )
    page = client.get(f"/api/v1/evaluations/{asked.key}/samples").json()
    assert (page["items"], page["total"]) == ([], 0)


def test_benchmarks_and_calibrations_are_listed(client: TestClient, store: Store) -> None:
    run = examples.make_run(store, kind="benchmark")
    for domain in ("translation", "math"):
        store.benchmarks.put(examples.cell(run.id, domain=domain))
    store.calibrations.put(examples.calibration())
    body = client.get(f"/api/v1/benchmarks?run_id={run.id}&domain=math").json()
    assert (body["total"], body["items"][0]["samples"][0]["seconds"]) == (1, [0.125, 0.126])
    body = client.get("/api/v1/calibrations?target=pypi:gemma3-270m").json()
    assert [point["num_nodes"] for point in body["items"][0]["curve"]] == [1, 13]
    assert client.get("/api/v1/calibrations?hardware=gpu").json()["total"] == 0


def test_both_outputs_of_one_prompt_come_token_by_token(client: TestClient, store: Store) -> None:
    run = examples.make_run(store, kind="benchmark")
    plain, drafted = examples.request(drafter=NoDrafter()), examples.request()
    store.evaluations.put(plain, examples.result(plain))
    wrong = examples.sample("de-2", token_ids=(3, 1, 5))
    samples = (examples.sample("de-1"), wrong)
    store.evaluations.put(drafted, examples.result(drafted, samples=samples))
    difference = CellDifference(
        item_id="de-2", position=2, expected_token=4, token=5, gap=0.1, kind="tie"
    )
    cell = examples.cell(
        run.id,
        drafter="token-recycling",
        evaluation_key=drafted.key,
        baseline_key=plain.key,
        is_lossless=False,
        certificate=Certificate(
            level="lossy",
            num_items=2,
            num_identical=1,
            num_ties=1,
            tie_gap=0.25,
            differences=(difference,),
        ),
    )
    store.benchmarks.put(cell)
    asked = {"run_id": run.id, "domain": "translation", "drafter": "token-recycling"}
    url = "/api/v1/benchmarks/outputs"
    body = client.get(url, params={**asked, "item_id": "de-2"}).json()
    assert body["method"]["token_ids"] == [3, 1, 5]
    assert body["origins"] == list(wrong.trace.origins())
    assert body["baseline"]["token_ids"] == [3, 1, 4, 1, 5, 9, 2, 6, 262143]
    assert CellDifference.model_validate(body["difference"]) == difference
    assert (body["is_lossless"], body["is_synthetic"]) == (False, False)
    assert client.get(url, params={**asked, "item_id": "de-1"}).json()["difference"] is None
    missing = client.get(url, params={**asked, "item_id": "de-3"})
    assert "no outputs for item 'de-3'" in problem(missing, 404, "item-not-found")["detail"]
    missing = client.get(url, params={**asked, "drafter": "none", "item_id": "de-1"})
    assert "has no cell" in problem(missing, 404, "cell-not-found")["detail"]


def test_other_routers_share_the_application_and_its_store(store: Store) -> None:
    router = APIRouter()

    @router.get("/page")
    def page(request: Request) -> int:
        count: int = request.app.state.store.profiles.count()
        return count

    with TestClient(create_app(Settings(api_key="key"), store=store, routers=[router])) as client:
        assert client.get("/page").json() == 0


def test_an_app_of_its_own_opens_and_closes_the_database(tmp_path: Path) -> None:
    app = create_app(Settings(home=tmp_path / "home", database_url=None, api_key=None))
    with TestClient(app) as client:
        assert client.get("/api/v1/health").json()["status"] == "ok"
    assert (tmp_path / "home" / "specdec.db").exists()
    assert app.state.store.database.reader.pool.checkedin() == 0


def test_openapi_describes_every_route(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    tags = {tag["name"] for tag in schema["tags"]}
    operations = [
        operation
        for path, item in schema["paths"].items()
        if path.startswith("/api/v1")
        for operation in item.values()
    ]
    assert len(operations) == 18
    for operation in operations:
        assert operation["summary"]
        assert set(operation["tags"]) <= tags
    resolve = schema["paths"]["/api/v1/profiles/resolve"]["get"]
    assert {"200", "304", "401", "404", "422", "503"} <= set(resolve["responses"])
    assert "application/problem+json" in resolve["responses"]["404"]["content"]


@pytest.mark.postgres
def test_the_api_answers_over_postgresql(postgres_url: str) -> None:
    with Store.open(postgres_url) as store, TestClient(create_app(store=store)) as client:
        assert client.get("/api/v1/health").json()["database"] == "postgresql"
        problem(client.get(RESOLVE), 404, "profile-not-found")
        stored = store.profiles.publish(examples.profile(examples.make_run(store).id))
        assert SkipProfile.model_validate(client.get(RESOLVE).json()) == stored
