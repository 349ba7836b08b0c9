"""A training on workers of Ray Train, and their driver."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from typing import Any

import ray

from specdec_core import errors
from specdec_core.config.settings import Settings
from specdec_core.errors import SpecDecError, WorkerLostError
from specdec_core.training.outcome import parse_event
from tasks.jobs import StopCheck
from tasks.ray_cluster import check_resources, connect, worker_environment, worker_resources
from tasks.run_files import write_text
from tasks.runtime import LogLine, resolve_device
from tasks.training_files import LineTail
from tasks.training_job import TrainingJob

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_GROUP_TIMEOUT_S = 600


def run_on_ray(
    job: TrainingJob,
    *,
    log: LogLine,
    progress: Any,
    should_stop: StopCheck,
) -> None:
    """Train on `job.config.num_workers` workers; a lost one restarts all from the last checkpoint.

    Args:
        job: What to train.
        log: Takes the first worker's lines for the user.
        progress: Told of metrics, in this thread.
        should_stop: Asked several times a second.

    Raises:
        SpecDecError: what the workers raised.
        WorkerLostError: if workers died more often than the configuration allows.
    """
    settings = job.settings.model_copy(update={"num_workers": job.config.num_workers})
    for path in (job.stop_path, job.fault_path, job.messages_path):
        path.unlink(missing_ok=True)
    owns_ray = connect(settings)
    try:
        check_resources(settings)
        trainer = _trainer(job, settings)
        fit = _Fit(trainer)
        events, messages = LineTail(job.metrics_path), LineTail(job.messages_path)
        events.read()  # what an earlier run wrote was reported by it
        while True:
            is_over = not fit.is_alive()
            for line in messages.read():
                log(line)
            for line in events.read():
                progress(parse_event(line))
            if is_over:
                break
            if should_stop() and not job.stop_path.exists():
                job.stop_path.touch()
            time.sleep(_POLL_S)
        _raise_fault(job)
        if fit.error is not None:
            raise WorkerLostError(
                f"training ended after {job.config.max_failures + 1} attempts "
                f"({_last_line(fit.error)}): the same command continues from the last checkpoint"
            ) from fit.error
    finally:
        with contextlib.suppress(OSError):  # a folder that is gone must not hide why it ended
            job.stop_path.touch()  # whatever still runs ends after its step
        if owns_ray:
            ray.shutdown()


class _Fit(threading.Thread):
    """Ray Train's driver on a thread of its own, so that this one can listen and report."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(name="ray-train", daemon=True)
        self._trainer = trainer
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self._trainer.fit()
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            self.error = error


def _trainer(job: TrainingJob, settings: Settings) -> Any:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    resources = worker_resources(settings)
    is_cuda = resolve_device(settings.device).startswith("cuda")
    named = {"CPU": resources["num_cpus"], "GPU": resources.get("num_gpus", 0)}
    return TorchTrainer(
        _worker_loop,
        train_loop_config={"job": job},
        torch_config=TorchConfig(backend="nccl" if is_cuda else "gloo", timeout_s=_GROUP_TIMEOUT_S),
        scaling_config=ScalingConfig(
            num_workers=job.config.num_workers,
            use_gpu=is_cuda,
            resources_per_worker={name: amount for name, amount in named.items() if amount},
        ),
        run_config=RunConfig(
            name="training",
            storage_path=str(job.run_folder / "ray"),
            failure_config=FailureConfig(max_failures=job.config.max_failures),
            worker_runtime_env={"env_vars": worker_environment(settings)},
        ),
    )


def _worker_loop(config: dict[str, Any]) -> None:
    """Run in every worker. What is no death of a worker is written down and not tried again."""
    from ray.train import get_context

    from tasks.training_worker import run_worker

    job: TrainingJob = config["job"]
    context = get_context()
    is_first = context.get_world_rank() == 0

    def say(line: str) -> None:
        with job.messages_path.open("a", encoding="utf-8") as file:
            file.write(line.replace("\n", " ") + "\n")

    try:
        run_worker(job, log=say, should_stop=job.must_end, num_here=context.get_local_world_size())
    except SpecDecError as error:
        if is_first:
            fault = {"type": type(error).__name__, "message": str(error)}
            write_text(job.fault_path, json.dumps(fault))


def _raise_fault(job: TrainingJob) -> None:
    """Raise what the workers wrote down, as the same error."""
    if job.fault_path.exists():
        fault = json.loads(job.fault_path.read_text())
        kind = getattr(errors, fault["type"], SpecDecError)
        raise kind(fault["message"])


def _last_line(error: Exception) -> str:
    """Return what a worker raised; the lines before say where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
