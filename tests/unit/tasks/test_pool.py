"""The worker, the pool in this process, failure kinds, and locks and logs around them."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from pathlib import Path

import pytest

from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, SearchCancelledError
from tasks.jobs import Job, JobFailure, JobResult, StopCheck
from tasks.pool import InlinePool
from tasks.ray_cluster import check_resources, worker_resources
from tasks.run_rows import end_status
from tasks.runtime import file_lock, run_log
from tasks.worker import ModelWorker
from tests.table_evaluator import Control, TableEvaluator, workload


def request(skip: str = "2") -> Job:
    return workload().request(
        skip=skip, drafter="none", item_ids=["item-01", "item-02"], max_new_tokens=8
    )


class OutOfMemoryError(RuntimeError):
    """Named as the accelerator's own error."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("x"), "error"),
        (MemoryError(), "memory"),
        (OutOfMemoryError("CUDA out of memory"), "memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"), "memory"),
        (RuntimeError("shape mismatch"), "error"),
        (ConfigError("wrong model"), "setup"),
        (SearchCancelledError("stop"), "cancelled"),
    ],
)
def test_failure_kinds(error: Exception, kind: str) -> None:
    failure = JobFailure.of(error)
    assert failure.kind == kind
    assert failure.error_type == type(error).__name__
    assert failure.message


def test_a_group_is_done_in_order_and_reported_one_by_one(control: Control) -> None:
    jobs = [request("1"), request("2"), request("")]
    with InlinePool(TableEvaluator(control.folder)) as pool:
        pool.submit(*jobs)
        seen = []
        while not pool.is_idle:
            seen += [completed.job.key for completed in pool.wait(1.0)]
    assert seen == [job.key for job in jobs]
    assert pool.wait(0.0) == []


def test_a_stopped_pool_drops_its_queue_and_cancels_later_jobs(control: Control) -> None:
    pool = InlinePool(TableEvaluator(control.folder))
    pool.submit(request("1"), request("2"))
    pool.stop()
    assert pool.is_idle
    pool.submit(request("1"))
    (completed,) = pool.wait(1.0)
    assert isinstance(completed.result, JobFailure)
    assert completed.result.kind == "cancelled"


def test_stop_is_heard_during_a_job(control: Control) -> None:
    (control.folder / "sleep").write_text("60")
    worker = ModelWorker(TableEvaluator(control.folder))
    threading.Timer(0.2, worker.stop).start()
    started = time.monotonic()
    reply = worker.run(request())
    assert isinstance(reply.completed.result, JobFailure)
    assert reply.completed.result.kind == "cancelled"
    assert time.monotonic() - started < 30


class TalkativeEvaluator:
    def __call__(self) -> TalkativeEvaluator:
        return self

    def run(self, job: Job, should_stop: StopCheck) -> JobResult:
        logging.getLogger("specdec_core.talk").info("about to fail on %s", job.key[:4])
        raise ValueError("no")


def test_log_lines_of_a_job_come_back_with_it() -> None:
    job = request()
    reply = ModelWorker(TalkativeEvaluator(), captures_log=True).run(job)
    assert reply.log[0] == f"INFO specdec_core.talk: about to fail on {job.key[:4]}"
    assert "ValueError: no" in reply.log[1]
    assert ModelWorker(TalkativeEvaluator()).run(job).log == ()


def test_the_run_log_is_a_file_of_the_run(settings: Settings) -> None:
    with run_log(settings, "abc") as path:
        logging.getLogger("tasks.something").info("key %s", "0123")
    assert path == settings.home_dir / "logs" / "run-abc.log"
    assert "INFO tasks.something: key 0123" in path.read_text()
    logging.getLogger("tasks.something").info("after")
    assert "after" not in path.read_text()


def test_a_file_lock_keeps_others_out(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with file_lock(tmp_path / "lock"):
            order.append("second")

    with file_lock(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_how_runs_end() -> None:
    assert end_status(SearchCancelledError("x")) == "cancelled"
    assert end_status(KeyboardInterrupt()) == "cancelled"
    assert end_status(ValueError("x")) == "failed"
    assert end_status(SystemError("a result with an exception set")) == "failed"
    with pytest.raises(SystemError) as caught:
        raise SystemError("a result with an exception set") from KeyboardInterrupt()
    assert end_status(caught.value) == "cancelled"


@pytest.mark.parametrize(
    ("device", "driver", "resources"),
    [
        ("cpu", False, {"num_cpus": 3}),
        ("auto", False, {"num_cpus": 3}),
        ("auto", True, {"num_gpus": 1, "num_cpus": 1}),
        ("cuda", False, {"num_gpus": 1, "num_cpus": 1}),
    ],
)
def test_a_worker_gets_the_accelerator_that_its_target_is_loaded_on(
    monkeypatch: pytest.MonkeyPatch, device: str, driver: bool, resources: dict[str, float]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: "/bin/nvidia-smi" if driver else None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert worker_resources(Settings(device=device, threads=3)) == resources


def test_a_certain_gpu_is_refused_as_ray_chooses_it() -> None:
    with pytest.raises(ConfigError, match="device 'cuda:1' names one GPU"):
        check_resources(Settings(device="cuda:1"))


def test_a_full_disk_under_the_run_log_prints_no_tracebacks(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = settings.home_dir / "logs"
    folder.mkdir(parents=True)
    (folder / "run-r.log").symlink_to("/dev/full")
    with contextlib.suppress(OSError), run_log(settings, "r"):
        logging.getLogger("tasks").info("a line that finds no room")
    assert capsys.readouterr().err == ""
