"""What the dashboard says about the life of a profile version."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from db.schemas import Interval
from db.store import Store
from tests.integration import store_examples
from tests.integration.dashboard_client import make_client
from tests.unit.dashboards import examples


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    with make_client(store, tmp_path) as client:
        yield client


def test_a_version_shows_who_moved_it_and_what_was_measured_again(
    client: TestClient, store: Store
) -> None:
    profile = examples.seed(store)
    html = client.get("/").text
    assert "Life of version 1, active" in html
    assert "Measured again" not in html
    run = store_examples.make_run(store, kind="profile-verify")
    worse = examples.heldout(metric_change=Interval(estimate=-0.25, low=-0.375, high=-0.125))
    measured = store_examples.verification(
        profile.id, run.id, holds=False, reason="the metric changed by -25.0%", heldout=worse
    )
    store.profiles.add_verification(measured, store_examples.cause())
    cause = store_examples.cause("it does not hold any more")
    store.profiles.move(profile.id or 0, "retired", cause)
    html = client.get(f"/?profile={profile.id}").text
    for text in (
        "Life of version 1, retired",
        "it does not hold any more",
        "ada@lab",
        "specdec profiles activate 1",
        "Measured again on the same held-out items",
        "does not hold",
        "the metric changed by -25.0%",
        "-37.5%",
    ):
        assert text in html, text


def test_moves_download_as_csv(client: TestClient, store: Store) -> None:
    profile = examples.seed(store)
    store.profiles.move(profile.id or 0, "retired", store_examples.cause(examples.HOSTILE))
    text = client.get(f"/dashboards/transitions.csv?profile={profile.id}").text
    rows = [(row["from_status"], row["to_status"]) for row in csv.DictReader(io.StringIO(text))]
    assert rows == [
        ("", "candidate"),
        ("candidate", "validated"),
        ("validated", "active"),
        ("active", "retired"),
    ]
    assert examples.HOSTILE not in client.get(f"/?profile={profile.id}").text


def test_versions_that_wait_are_not_among_the_active_ones(client: TestClient, store: Store) -> None:
    for status in ("candidate", "validated"):
        run = store_examples.make_run(store)
        store.profiles.publish(store_examples.profile(run.id, status=status, domain=status))
    html = client.get("/").text
    assert "candidate" not in html.split("<main", 1)[1].split("Latest searches")[0]
