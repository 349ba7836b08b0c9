"""Calibration and evaluation of a tiny random checkpoint by a real worker, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.store import Store
from specdec_core.config.calibration import CalibrationConfig, CalibrationRequest
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, MeasurementError, WorkerLostError
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.records import EvaluationResult
from tasks.calibration import run_calibration
from tasks.evaluator import ModelEvaluatorFactory
from tasks.jobs import Completed, Job, JobFailure, StopCheck
from tasks.pool import InlinePool, WorkerPool, pool_factory
from tasks.prepare import prepare


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"path:{write_tiny_checkpoint(tmp_path_factory.mktemp('tiny') / 'model')}"


@pytest.fixture
def suite(tmp_path: Path) -> str:
    lines = [
        f'{{"id": "q{i}", "domain": "riddles", "prompt": "number {i}?", "reference": "{i}", '
        '"metric": "f1", "meta": {}}\n'
        for i in range(4)
    ]
    path = tmp_path / "riddles.jsonl"
    path.write_text("".join(lines))
    return str(path)


def test_curve_and_layers_are_measured_and_stored(
    checkpoint: str, suite: str, settings: Settings, store: Store
) -> None:
    config = CalibrationConfig(
        domain="riddles",
        target=checkpoint,
        suite=suite,
        nodes=(4, 1),
        context=16,
        repeats=3,
        num_prompts=2,
    )
    lines: list[str] = []
    start = pool_factory(settings, ModelEvaluatorFactory(settings), is_inline=True)
    found = run_calibration(config, settings, store, start, log=lines.append)
    assert [point.num_nodes for point in found.curve] == [1, 4]
    assert all(len(point.seconds) == 3 and point.median_s > 0 for point in found.curve)
    assert [layer.layer for layer in found.layers] == [0, 1, 2]
    for layer in found.layers:
        assert layer.attention_similarity is not None
        assert layer.mlp_similarity is not None
        assert -1.0 <= layer.attention_similarity <= 1.0
    (stored,) = store.calibrations.list()
    assert stored == found
    (run,) = store.runs.list(kind="calibrate")
    assert run.status == "completed"
    assert "ms at 4 nodes" in lines[-1]


class _FailingPool(InlinePool):
    """Ends every job with one kind of failure."""

    def __init__(self, kind: str) -> None:
        super().__init__(_no_evaluator)
        self._kind = kind

    def wait(self, timeout_s: float) -> list[Completed]:
        job = self._queue.popleft()
        failure = {"kind": self._kind, "error_type": "X", "message": "boom"}
        return [Completed(job, JobFailure.model_validate(failure))]


def _no_evaluator() -> object:  # never called: every job fails first
    raise AssertionError


@pytest.mark.parametrize(
    ("kind", "error", "text"),
    [
        ("lost", WorkerLostError, "ended 2 workers"),
        ("memory", MeasurementError, "lower the context"),
        ("setup", ConfigError, "cannot work: boom"),
    ],
)
def test_failures_end_the_run_with_their_reason(
    checkpoint: str,
    suite: str,
    settings: Settings,
    store: Store,
    kind: str,
    error: type[Exception],
    text: str,
) -> None:
    def start(should_stop: StopCheck) -> WorkerPool:
        return _FailingPool(kind)

    config = CalibrationConfig(domain="riddles", target=checkpoint, suite=suite)
    with pytest.raises(error, match=text):
        run_calibration(config, settings, store, start)
    (run,) = store.runs.list()
    assert run.status == "failed"
    assert "boom" in (run.error or "")


def request(checkpoint: str, suite: str, settings: Settings, **changes: object) -> Job:
    workload = prepare(checkpoint, "riddles", suite, "auto", settings)
    made = workload.request(
        skip="", drafter="prompt-lookup", item_ids=["q0", "q1"], max_new_tokens=6, is_timed=True
    )
    return EvaluationRequest.model_validate({**made.model_dump(), **changes})


def test_a_worker_evaluates_and_refuses_what_is_not_as_asked(
    checkpoint: str, suite: str, settings: Settings
) -> None:
    evaluator = ModelEvaluatorFactory(settings)()
    job = request(checkpoint, suite, settings)
    result = evaluator.run(job, lambda: False)
    assert isinstance(result, EvaluationResult)
    assert result.key == job.key
    assert [sample.item_id for sample in result.samples] == ["q0", "q1"]
    assert all(sample.seconds for sample in result.samples)
    with pytest.raises(ConfigError, match=r"has identity .* was asked for"):
        evaluator.run(request(checkpoint, suite, settings, target_identity="0" * 64), lambda: False)
    with pytest.raises(ConfigError, match=r"has content .* was asked for"):
        evaluator.run(request(checkpoint, suite, settings, suite_hash="0" * 64), lambda: False)


def test_requests_with_other_content_have_other_keys(
    checkpoint: str, suite: str, settings: Settings
) -> None:
    keys = {
        request(checkpoint, suite, settings, **changes).key
        for changes in ({}, {"skip": "1"}, {"max_new_tokens": 7}, {"repetition": "2"})
    }
    assert len(keys) == 4
    moved = request(checkpoint, suite, settings).model_copy(update={"suite": "elsewhere"})
    assert moved.key in keys


def test_calibration_requests_are_keyed_by_content() -> None:
    one = CalibrationRequest(
        target="path:/x",
        target_identity="x",
        dtype="float32",
        nodes=(1,),
        context=8,
        repeats=3,
        suite="builtin",
        suite_hash="y",
        domain="riddles",
        item_ids=(),
    )
    assert one.key == one.model_copy().key
    assert one.key != one.model_copy(update={"context": 9}).key
