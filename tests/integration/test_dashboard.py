from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dashboards.app import create_app
from dashboards.assets import asset_urls
from dashboards.tables import DETAIL_TABLES, SEARCH_TABLES
from db.schemas import Interval
from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import StoreError
from tests.integration import store_examples
from tests.unit.dashboards import examples

ENVIRONMENT = {"PREFECT_API_URL": "http://127.0.0.1:4200/api"}


def make_client(store: Store, tmp_path: Path, **settings: Any) -> TestClient:
    values = {"home": tmp_path, "api_key": None, "mlflow_url": "http://127.0.0.1:5000"}
    app = create_app(Settings(**(values | settings)), store=store, environment=ENVIRONMENT)
    return TestClient(app)


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


@pytest.mark.parametrize(
    ("url", "status", "text"),
    [
        ("/?profile=99", 404, "profile 99 is not stored"),
        ("/?run=nothing", 404, "run &#39;nothing&#39; is not stored"),
        ("/?profile=x", 422, "profile: Input should be a valid integer"),
        ("/dashboards/nothing.csv", 404, "choose one of profiles, runs, heldout"),
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


def test_every_table_downloads_as_csv(client: TestClient, store: Store) -> None:
    profile = examples.seed(store)
    names = ("profiles", "runs", *SEARCH_TABLES, *DETAIL_TABLES)
    for name in names:
        response = client.get(f"/dashboards/{name}.csv?run={profile.run_id}")
        assert response.status_code == 200, name
        assert response.headers["content-type"] == "text/csv; charset=utf-8"
        assert response.headers["content-disposition"] == f'attachment; filename="{name}.csv"'
        assert list(csv.DictReader(io.StringIO(response.text))), name
        if name not in ("profiles", "runs", "history"):
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
