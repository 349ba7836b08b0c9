"""A training by Ray Train workers: equal to one process, and faults on the way."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from specdec_core.errors import ConfigError, EvaluationFailedError, SearchCancelledError
from specdec_core.training.outcome import StepMetrics, TrainingOutcome, ValidationMetrics
from tasks.training import train_draft
from tasks.training_job import plan_job
from tasks.training_ray import run_on_ray
from tests.tiny_training_data import settings_of, train_config, write_data, write_target

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # Ray's own, as Ray Train starts.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
    pytest.mark.filterwarnings("ignore::UserWarning:ray.data.context"),
]

ROOT = Path(__file__).parents[2]
Event = StepMetrics | ValidationMetrics
LONG = {"num_epochs": 40, "validate_every": 20, "learning_rate": 1e-3}
"""200 steps of some milliseconds, so that they are met in between."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    write_data(folder / "data", write_target(folder / "target"), settings_of(folder))
    return folder


@pytest.fixture(scope="module")
def alone(home: Path) -> TrainingOutcome:
    return train_draft(
        train_config(**LONG), settings_of(home), home / "data", home / "alone", is_inline=True
    )


def training_workers(root: int) -> list[psutil.Process]:
    """Return the training processes below a process."""
    try:
        below = psutil.Process(root).children(recursive=True)
        return [p for p in below if "RayTrainWorker" in " ".join(p.cmdline())]
    except psutil.NoSuchProcess:
        return []


def test_two_workers_one_of_them_killed_equal_one_process(
    home: Path, alone: TrainingOutcome
) -> None:
    """Ray is started once for all of this: cancelled, resumed, a worker killed, finished."""
    import ray

    seen: list[Event] = []
    killed: list[int] = []

    def kill_a_worker(event: Event) -> None:
        seen.append(event)
        if event.kind == "step" and event.step >= 50 and not killed:
            victim = training_workers(os.getpid())[0]
            killed.append(victim.pid)
            victim.kill()

    settings, config = settings_of(home), train_config(**LONG, num_workers=2, max_failures=2)
    folders = home / "data", home / "run"
    write_data(home / "broken", home / "target", settings, is_broken=True)
    lines: list[str] = []
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
    )
    try:
        with pytest.raises(SearchCancelledError, match="the same command continues"):
            train_draft(
                config,
                settings,
                *folders,
                progress=seen.append,
                should_stop=lambda: bool(seen) and seen[-1].step >= 2,
            )
        assert not training_workers(os.getpid())
        # Sharding is no part of what is trained: the same training goes on.
        sharded = config.model_copy(update={"sharding": "fsdp"})
        outcome = train_draft(sharded, settings, *folders, progress=kill_a_worker, log=lines.append)
        with pytest.raises(EvaluationFailedError, match=r"validation is nan; samples: s0"):
            train_draft(config, settings, home / "broken", home / "nan")
        assert ray.is_initialized()  # it was not ours to end
    finally:
        ray.shutdown()
    assert killed
    assert any(line.startswith("continuing after step") for line in lines)
    assert {event.step for event in seen if event.kind == "step"} == set(range(1, 201))
    assert outcome.num_steps == 200
    assert [one.step for one in outcome.validations] == [one.step for one in alone.validations]
    for mine, other in zip(outcome.losses[:20], alone.losses[:20], strict=True):
        assert mine == pytest.approx(other, abs=1e-5)
    # Sums in another order differ in the last digit, and the difference grows with the steps.
    assert outcome.last.loss == pytest.approx(alone.last.loss, abs=1e-2)
    assert outcome.last.greedy.num_windows == alone.last.greedy.num_windows


def test_a_folder_that_is_gone_does_not_hide_why_a_training_ended(home: Path) -> None:
    import ray

    config, folder = train_config(num_workers=2), home / "gone"
    job = plan_job(config, settings_of(home), home / "data", folder, lambda _line: None)
    shutil.rmtree(folder)
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(
        address="local",
        num_cpus=1,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
    )
    try:
        with pytest.raises(ConfigError, match="2 workers need 2 CPU"):
            run_on_ray(
                job,
                log=lambda _line: None,
                progress=lambda _event: None,
                should_stop=lambda: False,
            )
    finally:
        ray.shutdown()


def test_a_killed_driver_leaves_no_workers_and_is_continued(
    home: Path, alone: TrainingOutcome
) -> None:
    script = f"""
import os, signal
from pathlib import Path
from tasks.training import train_draft
from tests.tiny_training_data import settings_of, train_config
home = Path({str(home)!r})
def say(event):
    print(event.kind, event.step, flush=True)
train_draft(train_config(**{LONG!r}), settings_of(home), home / "data", home / "killed",
            progress=say)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert "step 30\n" in driver.stdout  # reads up to it
        workers = training_workers(driver.pid)
        driver.send_signal(signal.SIGKILL)
    assert workers
    deadline = time.monotonic() + 60
    while any(worker.is_running() for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(worker.is_running() for worker in workers)
    config = train_config(**LONG)
    seen: list[Event] = []
    outcome = train_draft(
        config,
        settings_of(home),
        home / "data",
        home / "killed",
        is_inline=True,
        progress=seen.append,
    )
    assert seen[0].step > 20
    assert outcome.losses == alone.losses
    mine = load_file(outcome.draft_folder / "model.safetensors")
    theirs = load_file(alone.draft_folder / "model.safetensors")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
