"""Draft checkpoints over REST: lists, filters, one with its training, entity tags."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from db.store import Store
from db.training import DraftCheckpoint, TrainingPoint
from tests.integration import store_examples as examples
from tests.integration.problems import problem


@pytest.fixture
def stored(store: Store) -> list[DraftCheckpoint]:
    """A pruned draft after one phase and after two, and an EAGLE head."""
    run = examples.make_run(store, kind="train-drafter")
    store.trainings.put(examples.training(run.id))
    changes = (
        {"content_hash": "1"},
        {"content_hash": "2", "loss": "wtv/wtv+0.1grpo", "parent_hash": "1", "phase": 2},
        {"content_hash": "3", "loss": "kl+0.1eal", "draft": "eagle", "draft_kind": "eagle"},
    )
    return [store.checkpoints.register(examples.checkpoint(run.id, **each)) for each in changes]


def test_checkpoints_are_listed_filtered_and_paged(
    client: TestClient, stored: list[DraftCheckpoint]
) -> None:
    body = client.get("/api/v1/checkpoints?limit=2").json()
    assert (body["total"], body["limit"], body["offset"]) == (3, 2, 0)
    assert [DraftCheckpoint.model_validate(each) for each in body["items"]] == stored[:0:-1]
    for query, expected in (
        ("kind=pruned", [2, 1]),
        ("loss=kl%2B0.1eal", [3]),
        ("loss=1kl%2B0.10*eal", [3]),
        ("loss=kl%2Beal", [3]),
        ("loss=wtv%2Fwtv%2B.1grpo", [2]),
        ("state=validated", []),
        ("state=candidate&target=pypi:smollm2-135m", [3, 2, 1]),
        (f"run_id={stored[0].run_id}&offset=2", [1]),
        ("target=other", []),
    ):
        items = client.get(f"/api/v1/checkpoints?{query}").json()["items"]
        assert [each["id"] for each in items] == expected, query


@pytest.mark.parametrize(
    ("loss", "reason"),
    [("magic", "loss 'magic' in 'magic' is unknown"), ("wtv%2F", "not one or two phases")],
)
def test_a_loss_that_is_none_is_refused(client: TestClient, loss: str, reason: str) -> None:
    answer = client.get(f"/api/v1/checkpoints?loss={loss}")
    assert answer.status_code == 422
    assert reason in answer.json()["detail"]


def test_one_checkpoint_has_its_curve_evaluation_and_lineage(
    client: TestClient, store: Store, stored: list[DraftCheckpoint]
) -> None:
    body = client.get("/api/v1/checkpoints/2").json()
    assert body["lineage"] == ["1"]
    assert (body["evaluation"], body["config"]) == (None, {"loss": "wtv"})
    curve = tuple(TrainingPoint.model_validate(each) for each in body["curve"])
    assert curve == examples.training("r").curve
    store.checkpoints.judge(
        "2",
        state="validated",
        reason="agrees",
        evaluation_key="e",
        evaluation={"cells": []},
        realised_length=2.0,
        realised_acceptance=(0.75, 0.25),
    )
    judged = client.get("/api/v1/checkpoints/2").json()
    assert (judged["evaluation"], judged["state"]) == ({"cells": []}, "validated")


def test_entity_tags_change_with_what_is_stored(
    client: TestClient, store: Store, stored: list[DraftCheckpoint]
) -> None:
    for path in ("/api/v1/checkpoints", f"/api/v1/checkpoints/{stored[0].id}"):
        tag = client.get(path).headers["etag"]
        assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
        store.checkpoints.note_exports("1", [f"/out/{tag}"])
        assert client.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_what_is_not_stored_or_not_asked_rightly_is_a_problem(client: TestClient) -> None:
    body = problem(client.get("/api/v1/checkpoints/1"), 404, "checkpoint-not-found")
    assert "GET /api/v1/checkpoints" in body["detail"]
    for wrong in ("kind=oak", "state=good", "colour=red", "limit=0"):
        problem(client.get(f"/api/v1/checkpoints?{wrong}"), 422, "bad-parameter")
