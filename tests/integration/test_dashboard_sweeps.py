"""What the dashboard says about comparisons of strategies and sweeps of tolerances."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from db.store import Store
from specdec_core.config.search import CompareConfig, SensitivityConfig
from specdec_core.config.settings import Settings
from tasks.pool import pool_factory
from tasks.sweep import run_sweep
from tasks.sweep_report import SweepReport
from tests.integration.dashboard_client import make_client
from tests.table_evaluator import TableEvaluator, config, workload


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    with make_client(store, tmp_path) as client:
        yield client


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", cache=tmp_path / "cache", threads=1)


def sweep(given: Any, settings: Settings, store: Store, folder: Path) -> SweepReport:
    (folder / "control").mkdir()
    start = pool_factory(settings, TableEvaluator(folder / "control"), is_inline=True)
    return run_sweep(given, settings, store, start, prepare_workload=workload)


def csv_of(client: TestClient, name: str, run_id: str) -> list[dict[str, str]]:
    response = client.get(f"/dashboards/{name}.csv?run={run_id}")
    assert response.status_code == 200
    return list(csv.DictReader(io.StringIO(response.text)))


def test_a_comparison_has_a_page_with_its_answers(
    client: TestClient, store: Store, settings: Settings, tmp_path: Path
) -> None:
    given = CompareConfig(search=config(), strategies=("tss", "sleb"))
    report = sweep(given, settings, store, tmp_path)
    html = client.get(f"/?run={report.run_id}").text
    for text in (
        "Strategies: translation on path:/table",
        report.headline.split(";")[0],
        'id="chart-changes"',
        "Answers on 20 held-out items",
        "The same on the 8 selection items",
        "tss: 2,3 holds on 20 held-out items",
        "plotly",
        "tss-compare",
    ):
        assert text in html, text
    answers = csv_of(client, "answers", report.run_id)
    assert [(row["name"], row["skip"]) for row in answers] == [
        ("", ""),
        ("tss", "2,3"),
        ("sleb", "1,4"),
    ]
    # Blocks 2 and 3 are a third of six layers; 24 tokens take 9 steps instead of 12.
    assert float(answers[1]["sparsity"]) == pytest.approx(2 / 6)
    assert float(answers[1]["acceptance"]) == pytest.approx(24 / 9)
    assert (answers[1]["holds"], answers[2]["holds"]) == ("True", "False")
    selection = csv_of(client, "answers-selection", report.run_id)
    assert [row["is_within_tolerances"] for row in selection] == ["True", "False"]


def test_a_sweep_of_tolerances_says_what_it_cost(
    client: TestClient, store: Store, settings: Settings, tmp_path: Path
) -> None:
    given = SensitivityConfig(search=config(), tolerances=(0.05, -0.5))
    report = sweep(given, settings, store, tmp_path)
    html = client.get(f"/?run={report.run_id}").text
    assert "Tolerances: translation on path:/table" in html
    assert report.cost is not None
    cost = f"{report.cost.num_extra} evaluations beyond the {report.cost.num_base} of the search"
    assert cost in html
    names = [row["name"] for row in csv_of(client, "answers", report.run_id)]
    assert names == ["", "base", "'+5%", "'-50%"]  # no formulas


def test_a_sweep_has_no_table_of_a_search(
    client: TestClient, store: Store, settings: Settings, tmp_path: Path
) -> None:
    given = CompareConfig(search=config(), strategies=("tss",))
    report = sweep(given, settings, store, tmp_path)
    response = client.get(f"/dashboards/front.csv?run={report.run_id}")
    assert response.status_code == 404
    assert "has no table" in response.text
