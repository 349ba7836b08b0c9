"""The completions server on a tiny target, and a client of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from specdec_core.config.serving import ServeConfig
from specdec_core.config.settings import Settings
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.serving.app import create_app
from tasks.serving.setup import Serving, open_serving
from tests.integration.served import CHAT_TEMPLATE, DRAFTER, SKIPS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving") / "tiny"
    write_tiny_checkpoint(folder, "qwen3")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    domains = {name: {"skip": skip, "status": "validated"} for name, skip in SKIPS.items()}
    document = {
        "model": f"path:{folder}",
        "drafter": DRAFTER,
        "num_layers": 3,
        "domains": {**domains, "code": {"skip": [9], "status": "active"}},
    }
    (folder.parent / "map.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def config(folder: Path) -> ServeConfig:
    return ServeConfig(
        target=f"path:{folder}",
        drafter=DRAFTER,
        dtype="float64",
        domain="none",
        profiles=str(folder.parent / "map.json"),
        max_new_tokens=60,
    )


@pytest.fixture(scope="module")
def serving(folder: Path, config: ServeConfig) -> Iterator[Serving]:
    settings = Settings(home=folder.parent / "home", cache=folder.parent / "cache", threads=1)
    with open_serving(config, settings, lambda _line: None, needs_router=False) as serving:
        yield serving


@pytest.fixture
def client(serving: Serving, config: ServeConfig) -> Iterator[TestClient]:
    with TestClient(create_app(serving, config)) as client:
        yield client
