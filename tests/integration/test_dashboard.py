"""What the dashboard says about searches, profiles and benchmarks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dashboards.links import PROFILE_TABLES
from dashboards.tables import DETAIL_TABLES, SEARCH_TABLES
from db.schemas import Interval
from db.store import Store
from tests.integration import store_examples
from tests.integration.dashboard_client import make_client
from tests.unit.dashboards import examples


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    with make_client(store, tmp_path) as client:
        yield client


def test_page_says_everything_about_the_newest_search(client: TestClient, store: Store) -> None:
    profile = examples.seed(store)
    response = client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    html = response.text
    for text in (
        "Gain: skip <code>a1,a3</code>",
        "a1,a3 holds.",
        "2.000 → 2.100",
        "1.100x",
        "1.040x to 1.150x",
        "not told apart from dense",
        "Where is the station?",
        "score 0.250 → 1.000",
        "Nearest misses: a2 (short by 20.0%).",
        "2 items without reference were left out",
        "No sign that skipping made the output degenerate",
        "3 better, 60 the same, 1 worse.",
        "Results on 64 held-out items",
        "Negative control: qa is harmed",
        "0123abcd",
        "specdec search translation",
        "test cpu, 2 threads",
        "s" * 64,
        "t" * 64,
        f"/api/v1/profiles/{profile.id}",
        "http://127.0.0.1:5000/#/runs/" + "f" * 32,
        "translation-abc",
    ):
        assert text in html, text
    for name in ("ablation", "front", "heldout", "depth"):
        assert f'id="chart-{name}"' in html


def test_search_that_compared_nothing_has_a_page(client: TestClient, store: Store) -> None:
    def bare(run_id: str) -> Any:
        nothing = {"heldout": None, "ablation": (), "levels": (), "negative_control": None}
        return examples.no_gain(run_id, cases=(), case_counts=None, **nothing)

    profile = examples.seed(store, bare, {"skip": "", "is_dense": True, "heldout": None})
    html = client.get(f"/?run={profile.run_id}").text
    assert "Nothing was compared on held-out items." in html
    assert "No configuration was scored." in html
    assert 'id="control"' not in html


def test_no_gain_is_as_prominent_as_a_gain(client: TestClient, store: Store) -> None:
    examples.seed(store, examples.no_gain, {"skip": "", "is_dense": True})
    html = client.get("/").text
    assert "<strong>No gain: keep the dense target</strong>" in html
    assert "no gain: nothing beats dense." in html
    assert "nothing is skipped" in html
    assert "skipping <code>a2</code>, the best sparse set that was tried, against dense" in html
    assert "Dense against skipping a2" in html


def test_published_skip_set_without_a_sure_gain_is_not_called_one(
    client: TestClient, store: Store
) -> None:
    unsure = examples.heldout(
        acceptance_change=Interval(estimate=0.05, low=-0.02, high=0.08),
        speedup=Interval(estimate=1.1, low=0.95, high=1.2),
    )
    examples.seed(
        store, lambda run_id: examples.report(run_id, heldout=unsure), {"heldout": unsure}
    )
    html = client.get("/").text
    assert "Unsure gain: skip <code>a1,a3</code>" in html
    assert "No figure is better than dense beyond doubt" in html
    assert '<span class="badge none">unsure gain</span>' in html


def test_answer_that_did_not_hold_is_said(client: TestClient, store: Store) -> None:
    def did_not_hold(run_id: str) -> Any:
        return examples.no_gain(
            run_id, verdict="did not hold", guards=("distinct bigrams fell from 0.90 to 0.50",)
        )

    examples.seed(store, did_not_hold, {"skip": "", "is_dense": True})
    html = client.get("/").text
    assert "<strong>Did not hold: keep the dense target</strong>" in html
    assert "distinct bigrams fell from 0.90 to 0.50" in html


def test_the_leaderboard_shows_a_benchmark_and_its_csv(client: TestClient, store: Store) -> None:
    empty = client.get("/leaderboard")
    assert (empty.status_code, "No benchmark yet" in empty.text) == (200, True)
    run = store_examples.make_run(store, kind="benchmark", name="spec-bench")
    store.benchmarks.put(store_examples.cell(run.id, is_lossless=False))
    store.benchmarks.put(store_examples.cell(run.id, drafter=examples.HOSTILE))
    notes = {"notes": ["1 of 8 items are not in the speed-up"]}
    store.runs.update(run.id, status="completed", summary=notes)
    html = client.get(f"/leaderboard?run={run.id}").text
    for text in ("Benchmark spec-bench", "prompt-lookup [lossy]", "up-to-ties", notes["notes"][0]):
        assert text in html, text
    assert "<script>alert" not in html
    lines = csv.DictReader(
        io.StringIO(client.get(f"/dashboards/leaderboard.csv?run={run.id}").text)
    )
    (first, _) = lines
    assert (first["run_id"], first["drafter"], first["is_lossless"]) == (
        run.id,
        "prompt-lookup",
        "False",
    )
    assert client.get("/leaderboard?run=none").status_code == 404


def test_hostile_text_is_escaped(client: TestClient, store: Store) -> None:
    def hostile(run_id: str) -> Any:
        texts = {name: examples.HOSTILE for name in ("prompt", "dense_text", "sparse_text")}
        case = examples.cases()[0].model_copy(update=texts)
        return examples.report(
            run_id,
            cases=(case,),
            advice=(examples.HOSTILE,),
            notes=(examples.HOSTILE,),
            suite=examples.HOSTILE,
            study=examples.HOSTILE,
        )

    examples.seed(store, hostile, {"reason": examples.HOSTILE, "hardware": examples.HOSTILE})
    store_examples.make_run(store, name=examples.HOSTILE)
    for url in ("/", f"/?domain={examples.HOSTILE}", f"/?run={examples.HOSTILE}"):
        html = client.get(url).text
        assert "<script>alert" not in html
        assert "<img" not in html
    assert "&lt;script&gt;alert" in client.get("/").text


def test_templates_never_switch_escaping_off() -> None:
    folder = Path(__file__).parents[2] / "dashboards" / "templates"
    texts = [path.read_text() for path in folder.iterdir()]
    assert len(texts) > 5
    assert not [text for text in texts if "|safe" in text.replace(" ", "")]


def test_pages_run_no_script_of_strangers(client: TestClient, store: Store) -> None:
    examples.seed(store)
    response = client.get("/")
    assert "script-src 'self';" in response.headers["content-security-policy"]
    assert response.text.count("<script") == 2
    assert "cdn" not in response.text.lower()


def test_empty_store_says_how_to_begin(client: TestClient) -> None:
    response = client.get("/")
    assert response.status_code == 200
    assert "No profile yet" in response.text
    assert "make search" in response.text
    assert "specdec search translation" in response.text
    assert "<script" not in response.text


def test_running_search_is_listed_before_there_is_a_profile(
    client: TestClient, store: Store
) -> None:
    run = store_examples.make_run(store)
    assert f"/?run={run.id}" in client.get("/").text
    html = client.get(f"/?run={run.id}").text
    assert "is still going" in html
    store.runs.update(run.id, status="failed", error="StoreError: disk full")
    html = client.get(f"/?run={run.id}").text
    assert "is failed and left no result: StoreError: disk full" in html


def test_filters_and_selection_make_an_address_that_can_be_shared(
    client: TestClient, store: Store
) -> None:
    first = examples.seed(store)
    second = examples.seed(store, profile={"domain": "qa"})
    html = client.get(f"/?domain=qa&target=&drafter=&profile={second.id}").text
    assert f"/?domain=qa&amp;profile={second.id}" in html
    assert f"/?domain=qa&amp;profile={first.id}" not in html
    assert '<option value="qa" selected>' in html
    assert 'aria-current="true"' in html
    nothing = client.get("/?domain=chat").text
    assert "No active profile matches domain <code>chat</code>." in nothing


def test_every_table_downloads_as_csv(client: TestClient, store: Store) -> None:
    profile = examples.seed(store)
    again = store_examples.verification(profile.id, store_examples.make_run(store).id)
    store.profiles.add_verification(again, store_examples.cause())
    names = ("profiles", "runs", *SEARCH_TABLES, *DETAIL_TABLES)
    for name in names:
        response = client.get(f"/dashboards/{name}.csv?run={profile.run_id}")
        assert response.status_code == 200, name
        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        assert response.headers["content-disposition"] == f'attachment; filename="{name}.csv"'
        assert list(csv.DictReader(io.StringIO(response.text))), name
        if name not in ("profiles", "runs", *PROFILE_TABLES):
            assert response.text.startswith("run_id,")
    front = client.get(f"/dashboards/front.csv?profile={profile.id}").text
    assert front == client.get("/dashboards/front.csv").text
    assert [row["skip"] for row in csv.DictReader(io.StringIO(front))] == ["a3", "a1,a3"]


def test_every_link_on_the_page_works(client: TestClient, store: Store) -> None:
    examples.seed(store)
    html = client.get("/").text
    found = {part.split('"')[0].replace("&amp;", "&") for part in html.split('href="/')[1:]}
    assert len(found) > 10
    for url in sorted(found):
        assert client.get(f"/{url}").status_code == 200, url
