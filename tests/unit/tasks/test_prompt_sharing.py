"""What a worker keeps of prompts: who may use it, what it changes, and when it is freed."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.records import EvaluationResult, PromptWork
from tasks.evaluator import ModelEvaluator
from tasks.prepare import Workload, prepare

NUM_LAYERS = 4
REQUESTED = {"mode", "prefill", "batch_size", "is_timed"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for name, seed in (("one", 1), ("two", 2)):
        options = {"seed": seed, "num_layers": NUM_LAYERS, "max_position_embeddings": 2048}
        write_tiny_checkpoint(root / name, "gemma3", **options)
    return root


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Prompts are read by torch's kernels in any case: compile none."""
    return settings.model_copy(update={"native": False})


def workload_of(models: Path, settings: Settings, name: str = "one") -> Workload:
    return prepare(f"path:{models / name}", "qa", None, "float32", settings)


def ask(workload: Workload, skip: str = "", **changes: object) -> EvaluationRequest:
    items = [item.id for item in workload.suite.items[:3]]
    fields: dict[str, object] = {
        "skip": skip,
        "drafter": "prompt-lookup",
        "item_ids": items,
        "max_new_tokens": 12,
        "batch_size": 2,
        "mode": "replay",
    }
    options = {name: changes.pop(name) for name in tuple(changes) if name in REQUESTED}
    request = workload.request(**{**fields, **options})  # type: ignore[arg-type]  # varied by the tests
    return request.model_copy(update=changes)


def run(evaluator: ModelEvaluator, request: EvaluationRequest) -> EvaluationResult:
    result = evaluator.run(request, lambda: False)
    assert isinstance(result, EvaluationResult)
    return result


@pytest.mark.parametrize("mode", ["replay", "decode", "loss"])
@pytest.mark.parametrize("prefill", ["sparse", "dense"])
def test_results_are_those_of_a_worker_that_shares_nothing(
    models: Path, settings: Settings, mode: str, prefill: str
) -> None:
    workload = workload_of(models, settings)
    alone = ModelEvaluator(settings.model_copy(update={"prompt_states_gib": 0.0}))
    sharing = ModelEvaluator(settings)
    reused = []
    for skip in ("", "1", "1,3", "1,a3", "2"):
        request = ask(workload, skip, mode=mode, prefill=prefill)
        expected, found = run(alone, request), run(sharing, request)
        assert found.samples == expected.samples
        assert found.summary.metric == expected.summary.metric
        assert found.summary.loss == expected.summary.loss
        assert expected.prompt_work == PromptWork()
        work = found.prompt_work
        reused.append(work.reused / (work.reused + work.computed))
    # By hand, of the layers that are run: see the order of the sets. Dense prompts are one.
    expected_shares = [0.0, 1 / 3, 1.0, 2 / 3, 2 / 3] if prefill == "sparse" else [0.0, *[1.0] * 4]
    assert reused == pytest.approx(expected_shares)


@pytest.mark.parametrize("changes", [{"is_timed": True}, {"record_gaps": True}])
def test_what_is_timed_or_whose_memory_is_reported_finds_and_leaves_nothing(
    models: Path, settings: Settings, changes: dict[str, bool]
) -> None:
    workload, evaluator = workload_of(models, settings), ModelEvaluator(settings)
    run(evaluator, ask(workload))
    apart = ask(workload, mode="decode", batch_size=1, **changes)
    assert run(evaluator, apart).prompt_work == PromptWork()
    assert run(evaluator, ask(workload)).prompt_work.reused == 0
    work = run(evaluator, ask(workload)).prompt_work
    assert work.computed == 0


def test_another_target_shares_nothing(models: Path, settings: Settings) -> None:
    evaluator = ModelEvaluator(settings)
    one, two = (workload_of(models, settings, name) for name in ("one", "two"))
    for workload in (one, two, one):
        assert run(evaluator, ask(workload)).prompt_work.reused == 0


def test_out_of_memory_beside_held_states_is_tried_without_them(
    models: Path, settings: Settings
) -> None:
    workload, evaluator = workload_of(models, settings), ModelEvaluator(settings)
    expected = run(evaluator, ask(workload, "1"))
    num_faults = 1

    def should_stop() -> bool:
        nonlocal num_faults
        if num_faults:
            num_faults -= 1
            raise MemoryError("no room")
        return False

    found = evaluator.run(ask(workload, "1"), should_stop)
    assert isinstance(found, EvaluationResult)
    assert (found.samples, found.prompt_work) == (expected.samples, PromptWork())
    num_faults = 2
    with pytest.raises(MemoryError, match="no room"):
        evaluator.run(ask(workload, "1"), should_stop)
