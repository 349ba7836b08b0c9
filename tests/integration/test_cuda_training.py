"""Training on a CUDA device: losses, steps and whole trainings as on the processor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specdec_core.config.training import Precision
from specdec_core.errors import SearchCancelledError
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.common import LossResult
from specdec_core.training.losses.eager import eager_loss
from specdec_core.training.losses.rows import Chunks
from specdec_core.training.trainer import Trainer
from tests.integration.test_training_workers import CONFIG, SAMPLES, state_of
from tests.tiny_training import Log, MemorySource, config_of, make_samples, make_trainer, moved
from tests.unit.training.loss_cases import (
    generators,
    losses,
    make_batch,
    make_head,
    make_passes,
    trainable,
)
from tests.unit.training.test_loss_bounded import ALL, SMALL, TEXTS, head_of
from tests.unit.training.test_trainer_precision import ROUNDING, distance, first_gradient

DEVICE = "cuda"
BACKEND = "nccl"
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def head_on(device: str, head: Head) -> Head:
    parts = {name: getattr(head, name) for name in ("weight", "bias", "target_ids")}
    return Head(**{name: part if part is None else part.to(device) for name, part in parts.items()})


def loss_numbers(
    form: Callable[..., LossResult],
    device: str,
    text: str,
    kind: str,
    dtype: torch.dtype,
    **options: Chunks,
) -> list[Tensor]:
    """Return a loss, its gradients and everything that it counts, on the processor."""
    batch = moved(make_batch(vocab=7, dtype=dtype), device)
    head = trainable(head_on(device, head_of(kind, dtype)))

    def passes(seed: int) -> list[DraftPass]:
        made = make_passes(batch, head, num=3, seed=seed)
        leaves = [one.hidden.detach().to(device).requires_grad_() for one in made]
        return [replace(one, hidden=leaf) for one, leaf in zip(made, leaves, strict=True)]

    own = passes(2)
    found = form(
        losses(text, **SMALL),
        batch,
        own,
        head_on(device, make_head(7, dtype=dtype)),
        reference=passes(11),
        generators=generators(batch),
        measures_acceptance=True,
        **options,
    )
    found.loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert found.acceptance is not None
    gradients = [one.hidden.grad for one in own] + [head.weight.grad]
    if head.bias is not None:
        gradients.append(head.bias.grad)
    assert all(
        one is not None and one.device.type == torch.device(device).type for one in gradients
    )
    numbers = [found.loss.detach(), *gradients, *found.sums.values()]
    numbers += [found.acceptance.greedy, found.acceptance.sampling]
    return [number.cpu().double() for number in numbers if number is not None]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["plain", "narrow", "bias"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 2e-5)], ids=str
)
def test_losses_are_those_of_the_processor(
    text: str, kind: str, dtype: torch.dtype, tolerance: float
) -> None:
    """The eager form and the bounded one, whatever its chunks."""
    expected = loss_numbers(eager_loss, "cpu", text, kind, dtype)
    found = [loss_numbers(eager_loss, DEVICE, text, kind, dtype)]
    for rows, vocab in ((1, None), (3, 2), (ALL, None)):
        chunks = Chunks(rows, vocab)
        found.append(loss_numbers(bounded_loss, DEVICE, text, kind, dtype, chunks=chunks))
    for numbers in found:
        torch.testing.assert_close(numbers, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_step_has_the_gradient_of_the_processor(precision: Precision, tmp_path: Path) -> None:
    """Products in another order: some roundings of every weight's gradient differ."""
    expected, _ = first_gradient(tmp_path / "cpu", precision, 20)
    found, step = first_gradient(tmp_path / "device", precision, 20, DEVICE)
    exact, _ = first_gradient(tmp_path / "exact", "float32", 1000)
    assert distance(found, expected) < 16 * ROUNDING[precision]
    if precision == "bfloat16":
        assert distance(found, exact) > ROUNDING[precision] / 4
    assert step.num_tokens > 0


def test_a_training_is_that_of_the_processor_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """In float64, where another order of sums changes little in 8 steps; a reference is kept."""
    config = config_of(num_epochs=2, second_epochs=1, loss="kl+0.1eal", second_loss="wtv+0.1grpo")

    def make(name: str, device: str, log: Log) -> Trainer:
        source = MemorySource(make_samples(20), device=device)
        return make_trainer(tmp_path / name, config, source, log=log, device=device)

    log, whole, stopped = Log(), Log(), Log()
    make("cpu", "cpu", log).run()
    make("whole", DEVICE, whole).run()
    trainer = make("stopped", DEVICE, stopped)
    with pytest.raises(SearchCancelledError):
        trainer.run(lambda: len(stopped.steps) == 6)
    trainer = make("stopped", DEVICE, stopped)
    assert trainer.resume() == 6
    trainer.run()
    expected = state_of(tmp_path / "cpu")
    assert expected.reference
    for name, own in (("whole", whole), ("stopped", stopped)):
        found = state_of(tmp_path / name)
        for part in ("weights", "reference", "moments"):
            torch.testing.assert_close(
                getattr(found, part), getattr(expected, part), rtol=0, atol=1e-7
            )
        assert [event.step for event in own.steps] == list(range(1, 9))
        assert [event.loss for event in own.steps] == pytest.approx(
            [event.loss for event in log.steps], abs=1e-7
        )
        assert own.validations[-1].greedy == log.validations[-1].greedy


SCRIPT = """
import sys, torch
from datetime import timedelta
from pathlib import Path
import torch.distributed as dist
from specdec_core.training.sharding import shard_blocks
from specdec_core.training.workers import Workers
from tests.integration.test_training_workers import CONFIG, SAMPLES
from tests.tiny_training import MemorySource, make_trainer, tiny_draft

rank, folder, kind, backend = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
place = f"{kind}:{rank}" if kind == "cuda" else kind
torch.set_num_threads(1)
if kind == "cuda":
    torch.cuda.set_device(rank)
dist.init_process_group(
    backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2,
    timeout=timedelta(seconds=60),
)
workers = Workers.of_group(torch.device(place))
for sharding in ("ddp", "fsdp"):
    draft = tiny_draft(folder)
    draft.module.to(place)
    if sharding == "fsdp":
        shard_blocks(draft, workers)
    source = MemorySource(SAMPLES, micro_batch_tokens=20, device=place)
    make_trainer(
        folder / sharding, CONFIG, source, draft=draft, workers=workers, device=place
    ).run()
dist.destroy_process_group()
"""


def run_two_workers(folder: Path) -> Sequence[int]:
    """Train on two devices, whole and sharded; return how both processes ended."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder), DEVICE, BACKEND], cwd=ROOT, env=environment
        )
        for rank in range(2)
    ]
    try:
        return [process.wait(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_workers_on_devices_of_their_own_reach_what_the_processor_reaches(
    tmp_path: Path,
) -> None:
    assert run_two_workers(tmp_path) == [0, 0]
    source = MemorySource(SAMPLES, micro_batch_tokens=20)
    make_trainer(tmp_path / "alone", CONFIG, source).run()
    expected = state_of(tmp_path / "alone")
    for sharding in ("ddp", "fsdp"):
        found = state_of(tmp_path / sharding)
        assert found.progress.num_tokens == expected.progress.num_tokens
        for part in ("weights", "moments"):
            torch.testing.assert_close(
                getattr(found, part), getattr(expected, part), rtol=0, atol=1e-7
            )
