"""Profiles over REST: lists, histories, `resolve`, entity tags, activations while clients read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from db.api.app import create_app
from db.lifecycle import ProfileVerification
from db.schemas import SkipProfile
from db.store import Store
from specdec_core.config.domain_map import DomainMap
from specdec_core.config.settings import Settings
from tests.integration import store_examples as examples
from tests.integration.problems import problem

RESOLVE = "/api/v1/profiles/resolve?target=pypi:gemma3-270m&domain=translation"


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


def test_the_domain_map_has_an_entity_tag(client: TestClient, published: SkipProfile) -> None:
    asked = {"target": published.target, "drafter": published.drafter}
    found = client.get("/api/v1/profiles/map", params=asked)
    assert DomainMap.model_validate(found.json()).domains["translation"].skip_text == published.skip
    known = {"If-None-Match": found.headers["ETag"]}
    assert client.get("/api/v1/profiles/map", params=asked, headers=known).status_code == 304
    other = client.get("/api/v1/profiles/map", params={**asked, "dtype": "float64"})
    assert "is active" in problem(other, 404, "profile-not-found")["detail"]


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
