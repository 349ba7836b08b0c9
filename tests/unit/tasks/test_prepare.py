"""What is resolved before a model is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from specdec_core.config.drafters import DrafterConfig, NoDrafter, PromptLookup, TokenRecycling
from specdec_core.config.settings import Settings
from specdec_core.decoding import make_drafter
from specdec_core.errors import ConfigError
from specdec_core.skip import SkipConfig
from tasks.plan import plan_search
from tasks.prepare import selection_batch_size, selection_mode
from tasks.runtime import checkpoint_config, resolve_device, resolve_dtype
from tests.table_evaluator import config, workload

DRAFTERS: list[DrafterConfig] = [
    NoDrafter(),
    PromptLookup(),
    TokenRecycling(),
    TokenRecycling(update="path"),
    TokenRecycling(state_scope="run"),
    TokenRecycling(update="path", state_scope="run"),
]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_selection_mode_agrees_with_the_decoding_library(drafter: DrafterConfig) -> None:
    assert (selection_mode(drafter) == "replay") == make_drafter(drafter).needs.is_replayable


def test_a_drafter_that_remembers_the_run_is_not_batched_in_the_loop() -> None:
    assert selection_batch_size(TokenRecycling(state_scope="run"), 16) == 1
    assert selection_batch_size(TokenRecycling(update="path", state_scope="run"), 16) == 16
    assert selection_batch_size(TokenRecycling(), 16) == 16


def test_dtype_is_the_checkpoints_own_unless_given(tmp_path: Path) -> None:
    outer = {"model_type": "gemma3", "text_config": {"torch_dtype": "bfloat16"}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    assert resolve_dtype("auto", tmp_path, "cuda") == "bfloat16"
    assert resolve_dtype("float32", tmp_path, "cuda") == "float32"
    assert resolve_dtype("bfloat16-int8", tmp_path, "cpu") == "bfloat16-int8"
    with pytest.raises(ConfigError, match="dtype 'int8' is not supported"):
        resolve_dtype("int8", tmp_path, "cpu")
    (tmp_path / "config.json").write_text("{}")
    assert resolve_dtype("auto", tmp_path, "cuda") == "float32"


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="Linux tells what processors can do")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_auto_takes_no_type_that_the_processor_would_have_to_convert(
    dtype: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"dtype": dtype}))
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert resolve_dtype(dtype, tmp_path, "cpu") == dtype
    if not flags & {"avx512f", "avx_ne_convert", "asimd"}:
        assert resolve_dtype("auto", tmp_path, "cpu") == "float32"
    if {"avx512_bf16", "amx_bf16"} <= flags and dtype == "bfloat16":
        assert resolve_dtype("auto", tmp_path, "cpu") == dtype


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no readable config\.json"):
        checkpoint_config(tmp_path)


def test_a_named_device_is_taken_as_it_is() -> None:
    assert resolve_device("cuda:1") == "cuda:1"


def test_one_request_per_configuration_differs_in_skip_alone() -> None:
    plan = plan_search(config(), Settings(), workload)
    dense, sparse = plan.request(SkipConfig()), plan.request(SkipConfig.parse("2"))
    assert sparse.model_copy(update={"skip": ""}) == dense
    assert dense.mode == "replay"
    assert dense.batch_size == 16
    assert not dense.is_timed
    assert dense.item_ids == plan.split.selection_ids


def test_requests_say_whose_kernels_may_run() -> None:
    asked = {"skip": "", "drafter": "none", "item_ids": ["item-00"], "max_new_tokens": 4}
    for native, kernels in ((True, "own"), (False, "torch")):
        made = replace(workload(), settings=Settings(native=native))
        assert made.request(**asked).kernels == kernels


def test_another_tolerance_is_another_study_of_the_same_evaluations() -> None:
    first = plan_search(config(), Settings(), workload)
    second = plan_search(config(tolerance=-0.2), Settings(), workload)
    assert first.study != second.study
    assert first.request(SkipConfig()).key == second.request(SkipConfig()).key


def test_searching_and_drivers_import_without_torch() -> None:
    """A search that the store answers must not pay for PyTorch, Ray or MLflow."""
    code = (
        "import sys, tasks.search, tasks.benchmark, tasks.calibration, tasks.evaluator\n"
        "found = {'torch', 'ray', 'mlflow', 'transformers'} & set(sys.modules)\n"
        "sys.exit(repr(found) if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
