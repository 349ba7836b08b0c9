"""The flow `train-drafter` behind Prefect's test harness, whole, on a tiny target without Ray."""

from __future__ import annotations

import dataclasses
import functools
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
from flows import draft_drivers
from flows.train_drafter import train_drafter
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import COMPARED, FLAT
from specdec_core.errors import ConfigError
from tasks.compare_losses import compare_losses
from tasks.draft_runs import run_training
from tasks.loss_report import LossReport
from tasks.pool import pool_factory
from tasks.sinks import NullTracker
from tasks.training_report import TrainingReport
from tasks.training_setup import TrainingSetup
from tests.tiny_training_runs import tiny_parameters

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def prefect_server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=120):
        yield
    logging.getLogger("prefect").handlers.clear()


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    given = tiny_parameters(tmp_path_factory.mktemp("models"))
    return {name: value for name, value in given.items() if name != "eval_branching"}


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    for name, value in {
        "HOME": str(tmp_path / "home"),
        "CACHE": str(tmp_path / "cache"),
        "DATA": "builtin",
        "THREADS": "1",
        "DEVICE": "cpu",
        "NATIVE": "false",
    }.items():
        monkeypatch.setenv(f"SPECDEC_{name}", value)
    inline = functools.partial(pool_factory, is_inline=True)
    monkeypatch.setattr(draft_drivers, "pool_factory", inline)
    for name, driver in (("run_training", run_training), ("compare_losses", compare_losses)):

        def in_process(config: Any, setup: TrainingSetup, driver: Any = driver) -> Any:
            return driver(config, dataclasses.replace(setup, is_inline=True))

        monkeypatch.setattr(draft_drivers, name, in_process)
    monkeypatch.setattr(draft_drivers, "open_tracker", lambda _settings: NullTracker())
    return Settings()


def latest_run() -> FlowRun:
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(sort="EXPECTED_START_TIME_DESC", limit=1)[0]


def artifacts_of(run: FlowRun) -> dict[str, Artifact]:
    chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
    with get_client(sync_client=True) as client:
        return {str(each.key): each for each in client.read_artifacts(artifact_filter=chosen)}


def test_parameters_are_the_flat_names_and_empty_by_default() -> None:
    properties: dict[str, Any] = train_drafter.parameters.model_dump()["properties"]
    assert set(properties) == {"preset", *COMPARED, *FLAT}
    assert {field["default"] for field in properties.values()} == {None}


def test_a_draft_is_trained_evaluated_registered_and_exported(
    parameters: dict[str, Any], embedded: Settings
) -> None:
    run_id = train_drafter("wtv", **parameters)
    run = latest_run()
    with Store.open(embedded.resolved_database_url) as store:
        stored = store.runs.get(run_id)
        (checkpoint,) = store.checkpoints.list(state="validated")
    assert stored is not None
    assert (stored.kind, stored.flow_run_id) == ("train-drafter", str(run.id))
    report = TrainingReport.model_validate(stored.summary)
    assert (report.losses, report.checkpoint) == ("wtv", checkpoint)
    assert run.state is not None
    assert (run.state.name, run.state.message) == ("Completed", report.headline)
    found = artifacts_of(run)
    prefix = "train-drafter"
    names = ("progress", "report", "training", "validation", "depth", "decoding")
    assert {f"{prefix}-{name}" for name in names} <= set(found)
    assert str(found[f"{prefix}-curve-chart"].data).startswith("data:image/png;base64,iVBOR")
    assert report.headline in str(found[f"{prefix}-report"].data)
    files = {path.name for path in (embedded.home_dir / "runs" / stored.id).iterdir()}
    assert files == {"report.json", "report.md", "curve.png", "depth.png"}
    (exported,) = checkpoint.exports
    assert (Path(exported) / "config.json").is_file()


def test_losses_are_compared_and_nothing_finished_is_repeated(
    parameters: dict[str, Any], embedded: Settings
) -> None:
    given = {**parameters, "losses": ["kl", "wtv"], "seeds": [0, 1], "export": False}
    run_id = train_drafter(**given)
    with Store.open(embedded.resolved_database_url) as store:
        stored = store.runs.get(run_id)
        num_runs, num_trainings = store.runs.count(kind="train-drafter"), store.trainings.count()
    assert stored is not None
    report = LossReport.model_validate(stored.summary)
    assert (num_runs, num_trainings) == (4, 4)
    assert [(each.loss, each.seed) for each in report.trainings] == [
        ("kl", 0),
        ("kl", 1),
        ("wtv", 0),
        ("wtv", 1),
    ]
    assert {(cell.loss, cell.temperature, cell.num_seeds) for cell in report.cells} == {
        (loss, temperature, 2) for loss in ("kl", "wtv") for temperature in (0.0, 1.0)
    }
    found = artifacts_of(latest_run())
    text = str(found["compare-losses-report"].data)
    assert "Paired changes against kl" in text
    assert "seeds 0, 1" in text
    assert {"compare-losses-chain-t0", "compare-losses-changes"} <= set(found)
    train_drafter(**given)
    with Store.open(embedded.resolved_database_url) as store:
        assert store.runs.count(kind="train-drafter") == 4
        assert store.runs.count(kind="compare-losses") == 2


def test_bad_parameters_fail_before_anything_is_stored(embedded: Settings) -> None:
    with pytest.raises(ConfigError, match="draft 'oak' is not valid"):
        train_drafter("kl", draft="oak")
    with pytest.raises(ConfigError, match="/nowhere"):
        train_drafter("kl", target="path:/nowhere")
    with Store.open(embedded.resolved_database_url) as store:
        assert store.runs.list() == []
