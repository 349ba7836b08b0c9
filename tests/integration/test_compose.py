"""docker-compose.yml: accepted by docker-compose, and fit to run as it stands."""

import importlib.metadata
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.services.plan import API_FACTORY, POOL

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
ONE_SHOT = {"deploy"}


def command_text(name: str) -> str:
    return " ".join(SERVICES[name]["command"])


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose not installed")
def test_docker_compose_accepts_the_file() -> None:
    command = ["docker-compose", "--env-file", "docker/example.env", "config", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose not installed")
@pytest.mark.parametrize("secret", ["POSTGRES_PASSWORD", "RAY_AUTH_TOKEN"])
def test_missing_secret_is_asked_for_by_name(secret: str, tmp_path: Path) -> None:
    lines = (ROOT / "docker" / "example.env").read_text().splitlines()
    settings = tmp_path / "test.env"
    settings.write_text("\n".join(line for line in lines if not line.startswith(secret)))
    command = ["docker-compose", "--env-file", str(settings), "config", "--quiet"]
    environment = {name: value for name, value in os.environ.items() if name != secret}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "copy docker/example.env to .env" in done.stderr


def test_services_of_the_product_are_there() -> None:
    expected = "postgres prefect-server mlflow ray-head ray-worker api deploy prefect-worker"
    assert set(SERVICES) == set(expected.split())


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_watched_or_ends_by_itself(name: str) -> None:
    service = SERVICES[name]
    if name in ONE_SHOT:
        assert service["restart"] == "no"
    else:
        assert service["healthcheck"]["test"][0] in {"CMD", "CMD-SHELL"}
        assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_dependencies_wait_for_health(name: str) -> None:
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        assert wait == {"condition": "service_healthy"}
        assert "healthcheck" in SERVICES[other]


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{\w+_PORT:-(\d+)\}:\1", port) for port in ports)


def test_mlflow_answers_to_its_name_in_the_network() -> None:
    assert "--allowed-hosts=mlflow:*,localhost:*,127.0.0.1:*" in SERVICES["mlflow"]["command"]
    assert SERVICES["api"]["environment"]["SPECDEC_MLFLOW_URL"] == "http://mlflow:5000"


@pytest.mark.parametrize("name", ["ray-head", "ray-worker", "prefect-worker"])
def test_ray_nodes_share_a_token_and_have_shared_memory(name: str) -> None:
    environment = SERVICES[name]["environment"]
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["RAY_AUTH_TOKEN"].startswith("${RAY_AUTH_TOKEN:?")
    assert SERVICES[name]["shm_size"]


def test_driver_joins_the_cluster_without_offering_processors() -> None:
    assert "ray start --address=ray-head:6379 --num-cpus=0" in command_text("prefect-worker")
    assert SERVICES["prefect-worker"]["environment"]["SPECDEC_RAY_ADDRESS"] == "ray-head:6379"


def test_each_program_has_a_database_of_its_own() -> None:
    names = re.findall(r"@postgres:5432/(\w+)", TEXT)
    assert set(names) == {"specdec", "prefect", "mlflow", "optuna"}
    script = (ROOT / "docker" / "init-databases.sql").read_text()
    created = set(re.findall(r"CREATE DATABASE (\w+);", script))
    assert created | {SERVICES["postgres"]["environment"]["POSTGRES_DB"]} == set(names)


def test_prefect_image_is_the_version_we_run_with() -> None:
    version = importlib.metadata.version("prefect")
    assert SERVICES["prefect-server"]["image"] == f"prefecthq/prefect:{version}-python3.11"
    manifest = yaml.safe_load((ROOT / "prefect.yaml").read_text())
    assert manifest["prefect-version"] == version


def test_our_services_share_one_image() -> None:
    ours = {name for name, service in SERVICES.items() if "build" in service}
    assert ours == set(SERVICES) - {"postgres", "prefect-server"}
    assert {SERVICES[name]["image"] for name in ours} == {"specdec-lab:local"}


def test_commands_name_what_the_code_names() -> None:
    assert API_FACTORY in SERVICES["api"]["command"]
    assert f"--pool {POOL}" in command_text("prefect-worker")
    assert f"work-pool create {POOL} " in command_text("deploy")


def test_pages_link_to_addresses_that_a_browser_sees() -> None:
    environment = SERVICES["api"]["environment"]
    assert environment["PREFECT_UI_URL"] == "http://127.0.0.1:${PREFECT_PORT:-4200}"
    assert environment["SPECDEC_MLFLOW_UI_URL"] == "http://127.0.0.1:${MLFLOW_PORT:-5000}"
    assert environment["SPECDEC_MLFLOW_URL"] == "http://mlflow:5000"
