"""`specdec verify` and `specdec bench` on a tiny checkpoint, in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from flows import drivers
from flows.commands.execute import execute
from specdec_core.decoding.verification import batch
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.tree.token_tree import TokenTree
from tasks import laws
from tasks.pool import pool_factory
from tasks.sinks import NullTracker


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(drivers, "pool_factory", partial(pool_factory, is_inline=True))
    monkeypatch.setattr(drivers, "open_tracker", lambda _settings: NullTracker())
    monkeypatch.setattr(laws, "NUM_DRAWS", 1000)


@pytest.fixture
def target(tmp_path: Path) -> str:
    folder = write_tiny_checkpoint(tmp_path / "tiny", num_layers=2, seed=7)
    config = json.loads((folder / "config.json").read_text())
    # Bytes as tokens make the few-shot header long.
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    return f"path:{folder}"


def flags(target: str) -> list[str]:
    common = ["--target", target, "--domains", "qa", "--suite", "builtin", "--json"]
    return [*common, "--num-items", "2", "--max-new-tokens", "24"]


@pytest.mark.parametrize(
    ("dtype", "level"), [("float64", "exact"), ("float32", "up-to-ties"), ("float64-int8", "exact")]
)
def test_the_level_reached_depends_on_the_type(
    target: str, capsys: pytest.CaptureFixture[str], dtype: str, level: str
) -> None:
    assert execute(["verify", "prompt-lookup", *flags(target), "--dtype", dtype]) == 0
    report = json.loads(capsys.readouterr().out)
    certificates = {cell["drafter"]: cell["certificate"] for cell in report["cells"]}
    assert certificates["prompt-lookup"]["level"] == level
    assert certificates["prompt-lookup"]["num_identical"] == 2


def test_weights_of_8_bits_are_called_lossy_beside_figures_and_proof(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [flag for flag in flags(target) if flag != "--json"]
    command = ["bench", "--methods", "prompt-lookup", "--verify", *asked]
    assert execute([*command, "--dtype", "float32-int8"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "(float32, int8 weights (lossy)): 2 items per domain" in printed
    assert "decoding, float32, int8 weights (lossy)" in printed


def test_a_lossy_rule_is_called_so(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    sampling = ["--sampling", "temperature=1.0,verification=typical", "--dtype", "float64"]
    assert execute(["verify", "prompt-lookup", *flags(target), *sampling]) == 0
    cell = json.loads(capsys.readouterr().out)["cells"][1]
    assert (cell["is_lossless"], cell["certificate"]["level"]) == (False, "lossy")


def test_a_rule_that_only_keeps_the_law_is_proven_by_its_distribution(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sampling = ["--sampling", "temperature=1.0,verification=residual", "--dtype", "float64"]
    assert execute(["verify", "prompt-lookup", *flags(target), *sampling]) == 0
    found = json.loads(capsys.readouterr().out)["cells"][1]["certificate"]
    assert found["level"] == "same-distribution"
    assert found["law"]["p_value"] >= 1e-3 > found["law"]["control_p_value"]
    # Without the test there is nothing that speaks for it.
    assert execute(["bench", "--methods", "prompt-lookup", *flags(target), *sampling]) == 0
    found = json.loads(capsys.readouterr().out)["cells"][1]["certificate"]
    assert (found["level"], found["law"]) == ("unproven", None)


def test_a_drafter_that_corrupts_the_output_is_a_defect(
    target: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def accept_everything(tree: TokenTree, choices: Sequence[int]) -> tuple[tuple[int, ...], int]:
        path = [0]
        while tree.children(path[-1]):
            path.append(next(iter(tree.children(path[-1]).values())))
        return tuple(path), choices[path[-1]]

    monkeypatch.setattr(batch, "match_greedy", accept_everything)
    command = ["verify", "token-recycling", *flags(target), "--dtype", "float64"]
    assert execute(command) == 1
    report = json.loads(capsys.readouterr().out)
    found = report["cells"][1]["certificate"]
    assert found["level"] == "defect"
    assert found["num_identical"] + found["num_defects"] == 2
    (first, *_) = found["differences"]
    assert first["gap"] > 1e-9
    assert first["token"] != first["expected_token"]
