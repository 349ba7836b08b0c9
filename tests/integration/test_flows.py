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

from db.schemas import Baseline
from db.store import Store
from flows import artifacts as flow_artifacts
from flows import drivers
from flows.benchmark import benchmark
from flows.calibrate import calibrate
from flows.nightly import nightly_benchmark
from flows.tss_compare import tss_compare
from flows.tss_search import tss_search
from flows.tss_sensitivity import tss_sensitivity
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.benchmark_report import BenchmarkReport
from tasks.pool import pool_factory
from tasks.report import SearchReport
from tasks.sinks import NullTracker
from tasks.sweep_report import SweepReport

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


# What only a search that publishes a profile asks for.
UNPUBLISHED = {"activate", "control", "num_control"}


@pytest.mark.parametrize(
    ("flow", "config", "left_out"),
    [
        (tss_search, SearchConfig, set()),
        (tss_compare, SearchConfig, {"strategy", *UNPUBLISHED}),
        (tss_sensitivity, SearchConfig, UNPUBLISHED),
        (calibrate, CalibrationConfig, set()),
        (benchmark, BenchmarkConfig, set()),
        (nightly_benchmark, BenchmarkConfig, {"skip", "suite", "verify", "preset"}),
    ],
    ids=[
        "tss-search",
        "tss-compare",
        "tss-sensitivity",
        "calibrate",
        "benchmark",
        "nightly-benchmark",
    ],
)
def test_parameters_are_the_fields_of_the_config_and_empty_by_default(
    flow: Any, config: Any, left_out: set[str]
) -> None:
    properties: dict[str, Any] = flow.parameters.model_dump()["properties"]
    sweeping = {"retry_failed", "strategies", "tolerances"}
    assert set(properties) - sweeping == set(config.model_fields) - left_out
    defaults = {name: field["default"] for name, field in properties.items()}
    assert {name for name, default in defaults.items() if default is not None} <= {"domain"}


def test_search_stores_its_report_and_leaves_artifacts(target: str, embedded: Settings) -> None:
    run_id = tss_search("translation", target=target, **SMALL)
    run = latest_run()
    assert run.name == f"translation {target}"
    with Store.open(embedded.resolved_database_url) as store:
        stored = store.runs.get(run_id)
    assert stored is not None
    assert (stored.status, stored.flow_run_id) == ("completed", str(run.id))
    report = SearchReport.model_validate(stored.summary)
    assert report.compared is not None
    assert run.state is not None
    assert run.state.message == report.headline
    artifacts = artifacts_of(run)
    prefix = "tss-search-translation"
    names = ("progress", "report", "level-1", "front", "ablation", "cases")
    assert {f"{prefix}-{name}" for name in names} <= set(artifacts)
    assert artifacts[f"{prefix}-progress"].data == 100.0
    assert report.headline in str(artifacts[f"{prefix}-report"].data)
    for chart in ("ablation-chart", "pareto-chart", "heldout-chart"):
        assert str(artifacts[f"{prefix}-{chart}"].data).startswith("data:image/png;base64,iVBOR")
    results = json.loads(str(artifacts[f"{prefix}-results"].data))
    assert [row["skip"] for row in results] == ["dense", report.compared.skip]
    files = {path.name for path in (embedded.home_dir / "runs" / stored.id).iterdir()}
    assert files == {"report.json", "report.md", "ablation.png", "pareto.png", "heldout.png"}
    level = json.loads(str(artifacts[f"{prefix}-level-1"].data))
    assert {row["skip"] for row in level} == {"a1", "a2"}


def test_strategies_and_tolerances_leave_their_tables(target: str, embedded: Settings) -> None:
    small = {**SMALL, "beam": 1, "depth": 1}
    compared = tss_compare("translation", target=target, strategies=["tss", "sleb"], **small)
    run = latest_run()
    with Store.open(embedded.resolved_database_url) as store:
        stored = store.runs.get(compared)
    assert stored is not None
    assert (stored.kind, stored.flow_run_id) == ("tss-compare", str(run.id))
    report = SweepReport.model_validate(stored.summary)
    found = artifacts_of(run)
    assert report.headline in str(found["tss-compare-translation-report"].data)
    rows = json.loads(str(found["tss-compare-translation-answers"].data))
    assert [row["strategy"] for row in rows] == ["-", "tss", "sleb"]
    assert str(found["tss-compare-translation-heldout-chart"].data).startswith("data:image/png")
    assert (embedded.home_dir / "runs" / compared / "heldout.png").is_file()
    tss_sensitivity("translation", target=target, tolerances=[0.0, -0.5], **small)
    rows = json.loads(str(artifacts_of(latest_run())["tss-sensitivity-translation-answers"].data))
    assert [row["tolerance"] for row in rows] == ["-", "base", "+0%", "-50%"]


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


def test_calibration_is_stored_and_shown(target: str, embedded: Settings) -> None:
    run_id = calibrate("qa", target=target, nodes=[1, 4], context=8, repeats=3, num_prompts=2)
    with Store.open(embedded.resolved_database_url) as store:
        stored = store.runs.get(run_id)
    assert stored is not None
    assert [point["num_nodes"] for point in stored.summary["curve"]] == [1, 4]
    artifacts = artifacts_of(latest_run())
    rows = json.loads(str(artifacts["calibrate-qa-step-time"].data))
    assert [row["nodes per forward"] for row in rows] == ["1", "4"]
    assert len(json.loads(str(artifacts["calibrate-qa-layers"].data))) == 4


GRID = {"methods": ["prompt-lookup"], "domains": ["translation"], "num_items": 4, "repeats": 1}


def test_benchmark_measures_every_method_beside_autoregressive_decoding(
    target: str, embedded: Settings
) -> None:
    run_id = benchmark(target=target, suite="builtin", max_new_tokens=8, session="one", **GRID)
    with Store.open(embedded.resolved_database_url) as store:
        cells = store.benchmarks.list(run_id=run_id)
    assert {(cell.domain, cell.drafter, cell.status) for cell in cells} == {
        ("translation", "none", "done"),
        ("translation", "prompt-lookup", "done"),
    }
    run = latest_run()
    assert run.name == f"{target} one"
    assert run.state is not None
    assert run.state.message == "2 cells measured"
    rows = json.loads(str(artifacts_of(run)["benchmark-cells"].data))
    assert [row["drafter"] for row in rows] == ["none", "prompt-lookup"]


def test_regression_against_the_baseline_is_marked(
    target: str, embedded: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    monkeypatch.setattr(flow_artifacts, "emit_event", lambda name, **_rest: events.append(name))
    monkeypatch.setenv("SPECDEC_DATA", "builtin")
    first = nightly_benchmark(target=target, max_new_tokens=8, session="first", **GRID)
    run = latest_run()
    assert run.state is not None
    assert (run.state.name, events) == ("Completed", [])
    # The same measurement, but a hundred times as fast, becomes the baseline.
    with Store.open(embedded.resolved_database_url) as store:
        faster = store.runs.create("nightly-benchmark", "faster", {}, {})
        for cell in store.benchmarks.list(run_id=first):
            samples = tuple(
                sample.model_copy(update={"seconds": tuple(s / 100 for s in sample.seconds)})
                for sample in cell.samples
            )
            store.benchmarks.put(cell.model_copy(update={"run_id": faster.id, "samples": samples}))
        store.baselines.set(Baseline(name="nightly", run_id=faster.id, reason="test"))
    second = nightly_benchmark(target=target, max_new_tokens=8, session="second", **GRID)
    run = latest_run()
    assert run.state is not None
    assert run.state.name == "Regression"
    assert str(run.state.message).startswith("REGRESSION: ")
    assert set(events) == {"specdec.quality.regression"}
    markdown = str(artifacts_of(run)["nightly-benchmark-report"].data)
    assert f"Regressions against run {faster.id}" in markdown
    with Store.open(embedded.resolved_database_url) as store:
        stored = store.runs.get(second)
    assert stored is not None
    report = BenchmarkReport.model_validate(stored.summary)
    assert {found.measure for found in report.regressions} == {"tokens_per_s"}
