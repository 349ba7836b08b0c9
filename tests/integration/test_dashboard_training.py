"""The page of draft training: what it says, shows and offers as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from dashboards.training_views import TRAINING_TABLES
from db.store import Store
from tests.integration import store_examples
from tests.integration.dashboard_client import make_client
from tests.unit.flows import training_examples as examples


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    with make_client(store, tmp_path) as client:
        yield client


def test_page_shows_the_acceptance_that_counts(client: TestClient, store: Store) -> None:
    report = examples.seed_training(store)
    page = client.get("/training")
    assert page.status_code == 200
    for text in (
        "<strong>validated</strong>",
        "realised acceptance is the expected one at 2 depths",
        "pruned:num_layers=5 of pypi:smollm2-135m, wtv",
        "math@gsm8k",
        "1.250x",
        "one remark",
        "/api/v1/checkpoints/1",
        "http://127.0.0.1:5000/#/runs/" + "f" * 32,
        "http://127.0.0.1:4200/runs/flow-run/0f",
        "d" * 64,
        "0123abcd",
    ):
        assert text in page.text, text
    for name in ("curve", "depth"):
        assert f'id="chart-{name}"' in page.text
    assert client.get("/training?checkpoint=1").text == page.text
    assert client.get(f"/training?run={report.run_id}").text == page.text
    assert f"/training?run={report.run_id}" in client.get(f"/?run={report.run_id}").text


def test_every_table_is_a_csv(client: TestClient, store: Store) -> None:
    examples.seed_training(store)
    for name in TRAINING_TABLES:
        rows = list(csv.DictReader(io.StringIO(client.get(f"/dashboards/{name}.csv").text)))
        assert rows, name
    rows = list(csv.DictReader(io.StringIO(client.get("/dashboards/agreement.csv").text)))
    assert [(row["depth"], row["expected"], row["agrees"]) for row in rows] == [
        ("1", "0.75", "yes"),
        ("2", "0.75", "yes"),
    ]
    assert rows[0]["training_key"] == "k" * 64


def test_a_training_that_goes_on_has_its_curve(client: TestClient, store: Store) -> None:
    run = store_examples.make_run(store, kind="train-drafter")
    store.trainings.put(store_examples.training(run.id))
    html = client.get(f"/training?run={run.id}").text
    assert "<strong>running</strong>" in html
    assert 'id="chart-curve"' in html
    assert "50 steps" in client.get("/training").text
    store.runs.update(run.id, status="failed", error="killed")
    html = client.get(f"/training?run={run.id}").text
    assert "<strong>failed</strong>" in html
    assert "the same command continues it" in html
    assert "50 steps" not in client.get("/training").text


def test_nothing_trained_and_nothing_found_are_said(client: TestClient) -> None:
    assert "No trained draft yet" in client.get("/training").text
    assert client.get("/training?checkpoint=9").status_code == 404
    assert client.get("/training?run=none").status_code == 404


def test_an_evaluation_of_another_form_hides_nothing_else(client: TestClient, store: Store) -> None:
    run = store_examples.make_run(store, kind="train-drafter")
    store.trainings.put(store_examples.training(run.id))
    store.checkpoints.register(store_examples.checkpoint(run.id))
    store.checkpoints.judge(
        "c" * 64,
        state="rejected",
        reason="gap",
        evaluation_key="e",
        evaluation={"cells": [{"domain": 5}]},
        realised_length=None,
        realised_acceptance=(),
    )
    html = client.get("/training").text
    assert "<strong>rejected</strong>" in html
    assert 'id="chart-curve"' in html
