"""The real services: up, a search through Prefect and Ray, a cancelled one, down, nothing left."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow.artifacts import download_artifacts

from db.store import Store
from flows.services.http import get_json, post_json
from flows.services.plan import POOL
from flows.services.prefect_api import PrefectApi
from flows.services.processes import flow_run_processes, instance_processes
from flows.services.state import SupervisorState, load_state
from specdec_core.config.domains import DOMAINS
from specdec_core.config.training_run import PRESETS
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.draft_exports import is_whole
from tasks.mlflow_client import KEY_TAG, MlflowMirror
from tasks.training_keys import folder_hash
from tests.ports import free_ports
from tests.tiny_training_runs import tiny_parameters

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]


class Shell:
    """Runs `specdec` the way a user does, in a folder that is not the repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        names = ("SPECDEC_PREFECT_PORT", "SPECDEC_MLFLOW_PORT", "SPECDEC_API_PORT")
        self.environment = {
            **{name: value for name, value in os.environ.items() if "PREFECT" not in name},
            **dict(zip(names, map(str, free_ports(3)), strict=True)),
            "SPECDEC_HOME": str(self.home),
            "SPECDEC_CACHE": str(folder / "cache"),
            "SPECDEC_DATA": "builtin",
            "SPECDEC_THREADS": "1",
            "RAY_AUTH_MODE": "disabled",
            "PYTHONPATH": str(ROOT),
        }

    def run(self, *words: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flows.cli", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    @property
    def state(self) -> SupervisorState:
        state = load_state(self.home)
        assert state is not None
        return state


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("services"))
    try:
        done = shell.run("up")
        assert done.returncode == 0, done.stderr
        assert "all services are ready" in done.stderr
        yield shell
    finally:
        state = load_state(shell.home)
        done = shell.run("down")
    assert done.returncode == 0, done.stderr
    assert state is not None
    assert instance_processes(state.instance) == []
    assert not (shell.home / "state.json").exists()


@pytest.fixture(scope="module")
def target(shell: Shell) -> str:
    folder = write_tiny_checkpoint(shell.folder / "tiny", num_layers=4)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    return f"path:{folder}"


def small(target: str, **more: object) -> dict[str, Any]:
    return {"target": target, "num_selection": 4, "num_heldout": 8, "max_new_tokens": 8, **more}


def as_flags(parameters: dict[str, Any]) -> list[str]:
    return [part for name, value in parameters.items() for part in ("--param", f"{name}={value}")]


def test_status_shows_every_service_alive(shell: Shell) -> None:
    done = shell.run("status", "--json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["phase"] == "ready"
    assert {service["name"] for service in report["services"]} == {
        "prefect",
        "mlflow",
        "api",
        "worker",
    }
    assert all(service["is_alive"] for service in report["services"])


def test_second_up_changes_nothing(shell: Shell) -> None:
    before = shell.state
    done = shell.run("up", "--json")
    assert done.returncode == 0, done.stderr
    assert "services are already running" in done.stderr
    assert shell.state.process == before.process


def test_every_deployment_is_registered_and_starts_in_the_checkout(shell: Shell) -> None:
    api = PrefectApi(shell.state.prefect_api_url, POOL)
    assert api.deployment_names() == sorted(
        [
            *(f"tss-search/{domain}" for domain in DOMAINS),
            *(f"tss-compare/{domain}" for domain in ("translation", "summarization")),
            *(f"tss-sensitivity/{domain}" for domain in ("translation", "summarization")),
            "calibrate/translation",
            "benchmark/ptd-ablation",
            "benchmark/spec-bench",
            "benchmark/spec-bench-paper",
            "nightly-benchmark/nightly",
            *(f"train-drafter/{preset}" for preset in PRESETS),
        ]
    )
    (step,) = api.deployment("tss-search/translation")["pull_steps"]
    assert step["prefect.deployments.steps.set_working_directory"]["directory"] == str(ROOT)
    (schedule,) = api.deployment("nightly-benchmark/nightly")["schedules"]
    assert (schedule["schedule"]["cron"], schedule["active"]) == ("0 2 * * *", True)


def test_rest_answers_and_env_names_it(shell: Shell) -> None:
    assert get_json(f"{shell.state.api_url}/api/v1/health")["status"] == "ok"
    lines = shell.run("env").stdout.splitlines()
    assert f"export PREFECT_API_URL={shell.state.prefect_api_url}" in lines
    assert f"export SPECDEC_API_URL={shell.state.api_url}" in lines


def test_wrong_parameter_is_refused_by_the_server_before_a_run(shell: Shell) -> None:
    done = shell.run("flow", "tss-search/translation", "--param", "beam=wide")
    assert done.returncode == 2
    assert "beam" in done.stderr


def test_search_through_prefect_and_ray_is_stored_and_served(shell: Shell, target: str) -> None:
    done = shell.run("flow", "tss-search/translation", *as_flags(small(target)), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["state"] == "completed"
    summary = answer["run"]["summary"]
    assert answer["message"] == summary["headline"]
    assert summary["costs"]["num_evaluated"] > 0
    served = get_json(
        f"{shell.state.api_url}/api/v1/profiles/resolve?target={target}&domain=translation"
    )
    assert served["id"] == summary["profile"]["id"]
    page = f"{shell.state.prefect_api_url.removesuffix('/api')}/runs/flow-run/"
    assert page in done.stderr
    experiments = post_json(
        f"{shell.state.mlflow_url}/api/2.0/mlflow/experiments/search", {"max_results": 10}
    )["experiments"]
    assert any(each["name"] != "Default" for each in experiments)


def test_a_draft_trained_through_prefect_is_evaluated_registered_and_exported(
    shell: Shell, tmp_path: Path
) -> None:
    given = tiny_parameters(shell.folder)
    flags = as_flags({name: json.dumps(value) for name, value in given.items()})
    done = shell.run("flow", "train-drafter/wtv", *flags, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    summary = answer["run"]["summary"]
    assert (answer["state"], answer["message"]) == ("completed", summary["headline"])
    assert all(cell["error"] is None for cell in summary["evaluation"]["cells"])
    checkpoint = summary["checkpoint"]
    assert checkpoint["state"] == "validated"
    (export,) = map(Path, checkpoint["exports"])
    assert is_whole(export)
    served = get_json(f"{shell.state.api_url}/api/v1/checkpoints/{checkpoint['id']}")
    assert served["content_hash"] == checkpoint["content_hash"]

    # The server has a copy of the very files under the registered name.
    client = MlflowMirror.connect(shell.state.mlflow_url, tmp_path).client
    (model,) = client.search_registered_models()
    (version,) = client.search_model_versions(f"name = '{model.name}'")
    assert version.tags[KEY_TAG] == checkpoint["content_hash"]
    (tmp_path / "copy").mkdir()
    uri = client.get_model_version_download_uri(model.name, version.version)
    copy = download_artifacts(
        uri, dst_path=str(tmp_path / "copy"), tracking_uri=shell.state.mlflow_url
    )
    assert folder_hash(Path(copy)) == checkpoint["content_hash"]
    assert answer["run"]["tracker_id"] == version.run_id


def test_cancelled_search_leaves_no_worker_and_a_cancelled_row(shell: Shell, target: str) -> None:
    api = PrefectApi(shell.state.prefect_api_url, POOL)
    deployment = api.deployment("tss-search/translation")
    # Long output on many items, so that the run is there to be cancelled.
    parameters = small(target, max_new_tokens=900, num_heldout=100, units="all", depth=3)
    run = api.start_run(deployment["id"], parameters)
    wait_for(lambda: api.run(run["id"])["state"]["type"] == "RUNNING")
    wait_for(lambda: bool(api.artifacts(run["id"], "progress")))
    time.sleep(3.0)
    api.set_state(run["id"], "CANCELLING", "test", force=False)
    wait_for(lambda: api.run(run["id"])["state"]["type"] == "CANCELLED")
    wait_for(lambda: run["id"] not in flow_run_processes(shell.state.instance))
    with Store.open(f"sqlite:///{shell.home / 'specdec.db'}") as store:
        [row] = store.runs.list(flow_run_id=run["id"])
    assert row.status == "cancelled"


def wait_for(condition: Any, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.5)
