"""prefect.yaml names what exists, and only that."""

from pathlib import Path
from typing import get_args

import pytest
import yaml

from specdec_core.config.benchmark import Preset
from specdec_core.config.domains import DOMAINS
from specdec_core.config.training_run import TrainingPreset

ROOT = Path(__file__).parents[3]
MANIFEST = yaml.safe_load((ROOT / "prefect.yaml").read_text())
DEPLOYMENTS = MANIFEST["deployments"]


def deployments_of(entrypoint: str) -> dict[str, dict]:
    return {d["name"]: d for d in DEPLOYMENTS if d["entrypoint"] == entrypoint}


def test_every_domain_has_a_search_deployment_with_nothing_but_its_name() -> None:
    searches = deployments_of("flows/tss_search.py:tss_search")
    assert set(searches) == set(DOMAINS)
    for domain, deployment in searches.items():
        assert deployment["parameters"] == {"domain": domain}


def test_other_deployments_of_the_product() -> None:
    assert set(deployments_of("flows/calibrate.py:calibrate")) == {"translation"}
    benchmarks = deployments_of("flows/benchmark.py:benchmark")
    assert set(benchmarks) == set(get_args(Preset))
    for name, deployment in benchmarks.items():
        assert deployment["parameters"] == {"preset": name}
    trainings = deployments_of("flows/train_drafter.py:train_drafter")
    assert set(trainings) == set(get_args(TrainingPreset))
    for name, deployment in trainings.items():
        assert deployment["parameters"] == {"preset": name}
    nightly = deployments_of("flows/nightly.py:nightly_benchmark")["nightly"]
    assert [schedule["cron"] for schedule in nightly["schedules"]] == ["0 2 * * *"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: f"{d['entrypoint']}-{d['name']}")
def test_entrypoint_exists_and_runs_in_our_pool(deployment: dict) -> None:
    path, _, function = deployment["entrypoint"].partition(":")
    assert f"def {function}(" in (ROOT / path).read_text()
    assert deployment["work_pool"] == {"name": "specdec"}


def test_flow_runs_start_in_the_checkout() -> None:
    (step,) = MANIFEST["pull"]
    assert step == {"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}
