"""Flows behind Prefect's test harness, on a tiny checkpoint, without Ray."""

import functools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.client.schemas.objects import Artifact, FlowRun
from prefect.testing.utilities import prefect_test_harness

from db.store import Store
from flows import drivers
from flows.tss_search import tss_search
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.pool import pool_factory
from tasks.report import SearchReport
from tasks.sinks import NullTracker

pytestmark = pytest.mark.slow

SMALL = {"suite": "builtin", "num_selection": 4, "num_heldout": 8, "max_new_tokens": 8}


@pytest.fixture(scope="module", autouse=True)
def prefect_server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=120):
        yield
    logging.getLogger("prefect").handlers.clear()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), num_layers=4)
    config = json.loads((folder / "config.json").read_text())
    # Bytes as tokens make the few-shot header long.
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    return f"path:{folder}"


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(drivers, "pool_factory", functools.partial(pool_factory, is_inline=True))
    monkeypatch.setattr(drivers, "open_tracker", lambda _settings: NullTracker())
    return Settings()


def latest_run() -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(sort="EXPECTED_START_TIME_DESC", limit=1)[0]


def artifacts_of(run: FlowRun) -> dict[str, Artifact]:
    chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
    with get_client(sync_client=True) as client:
        return {str(each.key): each for each in client.read_artifacts(artifact_filter=chosen)}


def test_parameters_are_the_fields_of_a_search() -> None:
    properties: dict[str, Any] = tss_search.parameters.model_dump()["properties"]
    assert set(properties) == set(SearchConfig.model_fields)
    assert {name: field["default"] for name, field in properties.items() if name != "domain"} == (
        dict.fromkeys(set(properties) - {"domain"})
    )


def test_search_stores_its_report_and_leaves_artifacts(target: str, embedded: Settings) -> None:
    run_id = tss_search("translation", target=target, **SMALL)
    run = latest_run()
    assert run.name == f"translation {target}"
    with Store.open(embedded.resolved_database_url) as store:
        stored = store.runs.get(run_id)
    assert stored is not None
    assert (stored.status, stored.flow_run_id) == ("completed", str(run.id))
    report = SearchReport.model_validate(stored.summary)
    assert run.state is not None
    assert run.state.message == report.headline
    artifacts = artifacts_of(run)
    prefix = "tss-search-translation"
    names = ("progress", "report", "level-1", "front", "ablation-chart", "ablation", "cases")
    assert {f"{prefix}-{name}" for name in names} <= set(artifacts)
    assert artifacts[f"{prefix}-progress"].data == 100.0
    assert report.headline in str(artifacts[f"{prefix}-report"].data)
    assert str(artifacts[f"{prefix}-ablation-chart"].data).startswith("data:image/svg+xml;base64,")
    level = json.loads(str(artifacts[f"{prefix}-level-1"].data))
    assert {row["skip"] for row in level} == {"a1", "a2"}


def test_second_run_is_answered_from_the_store(
    target: str, embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tss_search("translation", target=target, **SMALL)

    def no_pool(*_args: object, **_options: object) -> object:
        raise AssertionError("workers were started for stored results")

    monkeypatch.setattr(drivers, "pool_factory", lambda *_args: no_pool)
    second = tss_search("translation", target=target, **SMALL)
    with Store.open(embedded.resolved_database_url) as store:
        reports = [SearchReport.model_validate(store.runs.get(i).summary) for i in (first, second)]
    assert reports[1].costs.num_evaluated == 0
    assert reports[1].costs.num_memoised == reports[0].costs.num_evaluated
    assert reports[1].profile.model_copy(update={"is_new": True}) == reports[0].profile


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"domain": "translatoin"}, "domain 'translatoin' is unknown: did you mean 'translation'"),
        ({"domain": "qa", "tolerance": 7.0}, "parameter tolerance=7.0 is not valid"),
        ({"domain": "qa", "drafter": "magic"}, "drafter 'magic' is unknown"),
        ({"domain": "qa", "target": "pypi:nothing"}, "packaged model 'nothing' is unknown"),
        ({"domain": "qa", "target": "path:/nowhere"}, "/nowhere"),
    ],
)
def test_bad_parameters_fail_before_anything_is_stored(
    parameters: dict[str, Any], reason: str, embedded: Settings
) -> None:
    with pytest.raises(ConfigError, match=reason):
        tss_search(**parameters)
    run = latest_run()
    assert run.state is not None
    assert run.state.is_failed()
    assert reason in str(run.state.message)
    with Store.open(embedded.resolved_database_url) as store:
        assert store.runs.list() == []
