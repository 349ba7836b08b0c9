"""Two processes that train one draft, whole or sharded, against one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specdec_core.training.checkpoints import CheckpointFolder, TrainingState
from tests.tiny_training import Log, MemorySource, config_of, make_samples, make_trainer

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).parents[2]
# The last step of an epoch has one sample: a worker without any.
SAMPLES = make_samples(17)
CONFIG = config_of(num_epochs=3, second_epochs=1, loss="kl+0.1eal", second_loss="wtv")

SCRIPT = """
import sys, torch
from datetime import timedelta
import torch.distributed as dist
from pathlib import Path
from tests.integration.test_training_workers import CONFIG, SAMPLES
from tests.tiny_training import Log, MemorySource, make_trainer, tiny_draft
from specdec_core.errors import DataError, StoreError
from specdec_core.training.sharding import shard_blocks
from specdec_core.training.workers import Workers

rank, folder = int(sys.argv[1]), Path(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2,
    timeout=timedelta(seconds=60),
)
workers = Workers.of_group(torch.device("cpu"))
for kind in ("ddp", "fsdp"):
    log, draft = Log(), tiny_draft(folder)
    if kind == "fsdp":
        shard_blocks(draft, workers)
    trainer = make_trainer(
        folder / kind, CONFIG, MemorySource(SAMPLES, micro_batch_tokens=20), draft=draft,
        log=log, workers=workers,
    )
    trainer.run()
    if rank == 0:
        lines = [event.model_dump_json() for event in log.events]
        (folder / f"{kind}.jsonl").write_text("\\n".join(lines))
def full(event):
    if event.kind == "step":
        raise StoreError("the disk is full")
trainer = make_trainer(folder / "full", CONFIG, MemorySource(SAMPLES), log=full, workers=workers)
try:
    trainer.run()
except StoreError as error:
    (folder / f"fault-{rank}.txt").write_text(str(error))
class Damaged(MemorySource):
    'The second worker cannot read what it trains on, or what it validates on.'
    def __init__(self, part):
        super().__init__(SAMPLES)
        self.part = part
    def micro_batches(self, epoch, step, *, rank, num_workers):
        if self.part == "step" and rank:
            raise DataError("a step is damaged")
        return super().micro_batches(epoch, step, rank=rank, num_workers=num_workers)
    def validation_batches(self, *, rank, num_workers):
        yield from super().validation_batches(rank=rank, num_workers=num_workers)
        if self.part == "validation" and rank:
            raise DataError("a validation is damaged")
for part in ("step", "validation"):
    trainer = make_trainer(folder / part, CONFIG, Damaged(part), log=Log(), workers=workers)
    try:
        trainer.run()
    except DataError as error:
        (folder / f"{part}-{rank}.txt").write_text(str(error))
# Counts are added up before they are divided: 1 of 1 and 0 of 9 are 1 of 10.
sums = workers.sums({"hits": 1.0, "all": 1.0} if rank == 0 else {"all": 9.0})
assert sums == {"hits": 1.0, "all": 10.0}, sums
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trainings of two workers, and of one."""
    folder = tmp_path_factory.mktemp("workers")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(rank), str(folder)],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=150)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingState, Log]:
    folder, log = tmp_path_factory.mktemp("alone"), Log()
    source = MemorySource(SAMPLES, micro_batch_tokens=20)
    make_trainer(folder, CONFIG, source, log=log).run()
    return state_of(folder), log


def state_of(folder: Path) -> TrainingState:
    state = CheckpointFolder(folder / "checkpoints", "tiny").load()
    assert state is not None
    return state


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_workers_reach_what_one_reaches(
    kind: str, folder: Path, alone: tuple[TrainingState, Log]
) -> None:
    from specdec_core.training.outcome import parse_event

    theirs = state_of(folder / kind)
    assert theirs.progress.step == alone[0].progress.step
    assert theirs.progress.num_tokens == alone[0].progress.num_tokens
    for name, weight in alone[0].weights.items():
        torch.testing.assert_close(theirs.weights[name], weight, rtol=0, atol=1e-9)
    for name, moments in alone[0].moments.items():
        for key, moment in moments.items():
            torch.testing.assert_close(theirs.moments[name][key], moment, rtol=0, atol=1e-9)
    events = [parse_event(line) for line in (folder / f"{kind}.jsonl").read_text().splitlines()]
    assert len(events) == len(alone[1].events)
    for mine, other in zip(events, alone[1].events, strict=True):
        assert (mine.kind, mine.step) == (other.kind, other.step)
        assert mine.loss == pytest.approx(other.loss, abs=1e-6)
    validations = [event for event in events if event.kind == "validation"]
    for mine, other in zip(validations, alone[1].validations, strict=True):
        assert mine.greedy == other.greedy
        assert mine.sampling.num_windows == other.sampling.num_windows
        assert mine.sampling.reached == pytest.approx(other.sampling.reached, abs=1e-5)
        assert (mine.num_sequences, mine.num_tokens) == (other.num_sequences, other.num_tokens)


def test_metrics_that_cannot_be_written_end_all_workers(folder: Path) -> None:
    for rank in range(2):
        assert (folder / f"fault-{rank}.txt").read_text() == "the disk is full"


@pytest.mark.parametrize("part", ["step", "validation"])
def test_data_that_one_worker_cannot_read_end_all_workers(part: str, folder: Path) -> None:
    for rank in range(2):
        assert (folder / f"{part}-{rank}.txt").read_text() == f"a {part} is damaged"
