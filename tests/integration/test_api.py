"""The REST API over a real store: answers, paging, errors, entity tags, keys."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from fastapi import APIRouter, Request
from fastapi.testclient import TestClient

from db.api.app import create_app
from db.cells import CellDifference, Certificate
from db.lifecycle import ProfileVerification
from db.models import SCHEMA_REVISION
from db.schemas import EvaluationRow, RunRecord, SkipProfile
from db.store import Store
from specdec_core.config.drafters import NoDrafter
from specdec_core.config.settings import Settings
from specdec_core.records import SampleResult
from tests.integration import store_examples as examples
from tests.integration.problems import problem

RESOLVE = "/api/v1/profiles/resolve?target=pypi:gemma3-270m&domain=translation"


def test_health_names_database_schema_and_version(client: TestClient) -> None:
    body = client.get("/api/v1/health").json()
    assert body.pop("version")
    assert body == {"status": "ok", "database": "sqlite", "schema_revision": SCHEMA_REVISION}


def test_profiles_are_listed_filtered_and_paged(client: TestClient, store: Store) -> None:
    run = examples.make_run(store)
    stored = [
        store.profiles.publish(examples.profile(run.id, domain=domain))
        for domain in ("math", "chat", "qa")
    ]
    body = client.get("/api/v1/profiles", params={"limit": 2, "offset": 1}).json()
    assert (body["total"], body["limit"], body["offset"]) == (3, 2, 1)
    assert [SkipProfile.model_validate(item) for item in body["items"]] == stored[1::-1]
    filters = {"domain": "math", "status": "active", "drafter": "token-recycling:top_k=8"}
    body = client.get("/api/v1/profiles", params=filters).json()
    assert [item["id"] for item in body["items"]] == [stored[0].id]
    assert client.get("/api/v1/profiles?target=unknown").json()["items"] == []
    assert client.get("/api/v1/profiles?offset=3").json() == {
        "items": [],
        "total": 3,
        "limit": 50,
        "offset": 3,
    }


def test_times_are_iso_in_utc(client: TestClient, published: SkipProfile) -> None:
    moment = client.get(f"/api/v1/profiles/{published.id}").json()["created_at"]
    assert moment.endswith("Z")
    assert moment == published.created_at.isoformat().replace("+00:00", "Z")


def test_one_profile_and_its_history(
    client: TestClient, store: Store, published: SkipProfile
) -> None:
    newer = store.profiles.publish(examples.profile(examples.make_run(store).id, skip="a4"))
    one = client.get(f"/api/v1/profiles/{published.id}")
    assert SkipProfile.model_validate(one.json()).status == "retired"
    body = client.get(f"/api/v1/profiles/{published.id}/history").json()
    assert [(item["id"], item["version"]) for item in body["items"]] == [
        (newer.id, 2),
        (published.id, 1),
    ]
    assert body["total"] == 2
    part = client.get(f"/api/v1/profiles/{published.id}/history?limit=1&offset=1").json()
    assert [item["id"] for item in part["items"]] == [published.id]


def test_resolve_answers_the_active_profile(client: TestClient, published: SkipProfile) -> None:
    response = client.get(RESOLVE)
    assert SkipProfile.model_validate(response.json()) == published
    by_identity = client.get(
        "/api/v1/profiles/resolve",
        params={
            "target": published.target_identity,
            "domain": "translation",
            "drafter": "token-recycling:top_k=8",
            "dtype": "bfloat16",
        },
    )
    assert by_identity.json() == response.json()


def test_resolve_without_answer_names_the_closest(
    client: TestClient, published: SkipProfile
) -> None:
    response = client.get("/api/v1/profiles/resolve?target=pypi:gemma3-270m&domain=math")
    body = problem(response, 404, "profile-not-found")
    assert body["closest"] == [
        {
            "key": {
                "target": published.target,
                "target_identity": published.target_identity,
                "domain": "translation",
                "drafter": "token-recycling",
                "dtype": "bfloat16",
            },
            "profile_id": published.id,
            "differs": ["domain"],
        }
    ]
    assert "differs in domain" in body["detail"]


def test_unchanged_answers_are_304(
    client: TestClient, store: Store, published: SkipProfile
) -> None:
    for url in (RESOLVE, f"/api/v1/profiles/{published.id}"):
        tag = client.get(url).headers["etag"]
        for header in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = client.get(url, headers={"If-None-Match": header})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
        assert client.get(url, headers={"If-None-Match": '"other"'}).status_code == 200
    tag = client.get(RESOLVE).headers["etag"]
    store.profiles.publish(examples.profile(examples.make_run(store).id, skip="a4"))
    changed = client.get(RESOLVE, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["skip"]) == (200, "a4")


def test_moves_and_measurements_of_a_profile_are_listed(
    client: TestClient, store: Store, published: SkipProfile
) -> None:
    run = examples.make_run(store, kind="profile-verify")
    measured = examples.verification(published.id, run.id, holds=False, reason="the metric fell")
    stored = store.profiles.add_verification(measured, examples.cause())
    store.profiles.move(published.id or 0, "retired", examples.cause("it is worse now"))
    url = f"/api/v1/profiles/{published.id}"
    body = client.get(f"{url}/transitions?limit=2&offset=2").json()
    assert body["total"] == 4
    assert [(each["from_status"], each["to_status"]) for each in body["items"]] == [
        ("validated", "active"),
        ("active", "retired"),
    ]
    last = body["items"][-1]
    assert (last["reason"], last["actor"], last["command"], last["run_id"]) == (
        "it is worse now",
        "ada@lab",
        "specdec profiles activate 1",
        None,
    )
    body = client.get(f"{url}/verifications").json()
    assert [ProfileVerification.model_validate(each) for each in body["items"]] == [stored]
    assert client.get("/api/v1/profiles?status=retired").json()["total"] == 1
    assert client.get("/api/v1/profiles?status=candidate").json()["total"] == 0
    for part in ("transitions", "verifications"):
        problem(client.get(f"/api/v1/profiles/99/{part}"), 404, "profile-not-found")


def test_resolve_follows_every_activation(
    client: TestClient, store: Store, published: SkipProfile
) -> None:
    store.targets.put(examples.target())
    run = examples.make_run(store)
    second = store.profiles.publish(examples.profile(run.id, skip="a4", status="validated"))
    first_tag = client.get(RESOLVE).headers["etag"]
    assert SkipProfile.model_validate(client.get(RESOLVE).json()) == published
    store.profiles.move(second.id or 0, "active", examples.cause())
    changed = client.get(RESOLVE, headers={"If-None-Match": first_tag})
    assert (changed.status_code, changed.json()["id"]) == (200, second.id)
    store.profiles.move(published.id or 0, "active", examples.cause())
    assert client.get(RESOLVE, headers={"If-None-Match": first_tag}).status_code == 304
    store.profiles.move(published.id or 0, "retired", examples.cause())
    assert client.get(RESOLVE).status_code == 404


@pytest.mark.parametrize("system", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_readers_get_the_old_or_the_new_profile_while_a_search_publishes(
    system: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    if system == "postgres":
        url = request.getfixturevalue("postgres_url")
    num_versions, seen = 25, [list[int](), list[int]()]
    is_done = threading.Event()

    def read(client: TestClient, versions: list[int]) -> None:
        while not is_done.is_set() or not versions:
            body = client.get(RESOLVE).json()
            versions.append(body["version"] if body.get("status") == "active" else -1)

    with Store.open(url) as store, Store.open(url) as writing:
        store.profiles.publish(examples.profile(examples.make_run(store).id))
        with TestClient(create_app(Settings(api_key=None), store=store)) as client:
            threads = [threading.Thread(target=read, args=(client, each)) for each in seen]
            for thread in threads:
                thread.start()
            for number in range(1, num_versions):
                run = examples.make_run(writing)
                asked = examples.request(item_ids=(f"item-{number}",))
                writing.evaluations.put(asked, examples.result(asked))
                writing.profiles.publish(examples.profile(run.id, skip=f"a{1 + number % 16}"))
            is_done.set()
            for thread in threads:
                thread.join(60)
        for versions in seen:
            assert versions == sorted(versions)  # never none, never back to an older one
            assert set(versions) <= set(range(1, num_versions + 1))
        assert store.profiles.resolve("pypi:gemma3-270m", "translation").version == num_versions


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
    assert len(operations) == 15
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
