"""Training and trained drafters on a CUDA device: what they do on the processor."""

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

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.config.sampling import Sampling
from specdec_core.config.training import Precision
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.drafts.loading import DraftShelf
from specdec_core.errors import SearchCancelledError
from specdec_core.models.graphs import cuda_capture
from specdec_core.models.loading import load_target
from specdec_core.models.reference import ResolvedModel, resolve_model
from specdec_core.models.tiny import tiny_target, write_tiny_checkpoint
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.expected import AcceptanceRule, acceptance_chances, one_sequence
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.common import LossResult
from specdec_core.training.losses.eager import eager_loss
from specdec_core.training.losses.rows import Chunks
from specdec_core.training.reference import load_reference
from specdec_core.training.target import FrozenTarget
from specdec_core.training.trainer import Trainer
from tests.conformance.test_drafters_learned_on_models import CONFIGS, drafters_for
from tests.conformance.test_drafters_on_models import LIMIT, PROMPTS
from tests.integration.test_training_workers import CONFIG, SAMPLES, state_of
from tests.learned_drafts import write_draft
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


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("is_captured", [False, True])
def test_learned_drafts_change_no_token_alone_or_in_a_batch(
    config: Eagle | Medusa, family: str, is_captured: bool
) -> None:
    capture = cuda_capture(torch.device(DEVICE)) if is_captured else None
    target = tiny_target(family, dtype="float32", vocab_size=7, device=DEVICE, capture=capture)
    view, options = target.view(), {"max_new_tokens": LIMIT, "eos_ids": ()}
    plain = generate(view, PROMPTS, [make_drafter(NoDrafter()) for _ in PROMPTS], **options)
    expected = [result.token_ids for result in plain]
    together = generate(view, PROMPTS, drafters_for(view, config), **options)
    assert [result.token_ids for result in together] == expected
    assert sum(sum(result.trace.drafted) for result in together) > 0
    (drafter,) = drafters_for(view, config, num=1)
    for prompt, result in zip(PROMPTS, together, strict=True):
        (alone,) = generate(view, [prompt], [drafter], **options)
        assert alone.token_ids == result.token_ids


@pytest.mark.parametrize(
    "config",
    [
        Eagle(model="eagle3-narrow", shape="chain", draft="coupled"),
        Medusa(model="medusa", shape="chain", draft="coupled"),
    ],
    ids=str,
)
def test_coupled_candidates_leave_drawn_outputs_as_they_are(config: Eagle | Medusa) -> None:
    view = tiny_target("llama", vocab_size=7, device=DEVICE).view()
    sampling = Sampling(temperature=0.7, top_k=4, top_p=0.9, seed=4)
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "sampling": sampling, "seeds": [11, 12, 13]}
    plain = generate(view, PROMPTS, [make_drafter(NoDrafter()) for _ in PROMPTS], **options)
    found = generate(view, PROMPTS, drafters_for(view, config, sampling), **options)
    assert [one.token_ids for one in found] == [one.token_ids for one in plain]
    assert sum(sum(one.trace.accepted) for one in found) > 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[ResolvedModel, Path]:
    """A target and the folder of its untrained heads."""
    folder = tmp_path_factory.mktemp("stored")
    target = write_tiny_checkpoint(folder / "target", num_layers=6, dtype="float32")
    model = resolve_model(f"path:{target}", folder / "cache")
    loaded = load_target(model, dtype="float32", device="cpu")
    for kind in ("eagle", "eagle3-narrow", "medusa"):
        write_draft(folder / kind, kind, loaded)
    return model, folder


@pytest.mark.parametrize("kind", ["eagle", "eagle3-narrow", "medusa"])
def test_a_stored_head_drafts_as_on_the_processor(
    kind: str, stored: tuple[ResolvedModel, Path]
) -> None:
    model, folder = stored
    options = Medusa if kind == "medusa" else Eagle
    config = options(model=str(folder / kind), shape="chain", gamma=3)
    found = []
    for device in (DEVICE, "cpu"):
        target = load_target(model, dtype="float32", device=device)
        view = target.view()
        context = DrafterContext(target, view=view, load_draft=DraftShelf(target).load)
        drafter = make_drafter(config, context)
        (result,) = generate(view, [[5, 90, 17, 200]], [drafter], max_new_tokens=LIMIT, eos_ids=())
        found.append((result.token_ids, result.trace.drafted, result.trace.accepted))
    assert found[0] == found[1]
    assert sum(found[0][1]) > 0


@pytest.mark.parametrize("kind", ["eagle", "eagle3-narrow", "medusa"])
@pytest.mark.parametrize(
    "rule",
    [
        AcceptanceRule(0.0, (2, 1, 1)),
        AcceptanceRule(1.0, (2, 1, 1)),
        AcceptanceRule(1.0, (1, 1, 1), is_drawn=True),
    ],
    ids=str,
)
def test_expected_acceptance_is_that_of_the_processor(
    kind: str, rule: AcceptanceRule, stored: tuple[ResolvedModel, Path]
) -> None:
    model, folder = stored
    sequence = [5, 90, 17, 200, 3, 44, 61, 7, 8, 9, 10, 11]
    found = []
    for device in (DEVICE, "cpu"):
        frozen = FrozenTarget.load(model, dtype="float32", device=device)
        draft = load_reference(folder / kind, model, num_steps=3, device=device)
        ((hidden, tapped),) = frozen.states([sequence], draft.taps)
        batch = one_sequence(sequence, 3, hidden, tapped if draft.taps else None)
        with torch.inference_mode():
            output = draft.forward(batch)
        found.append(acceptance_chances(output, batch, frozen.head, 3, rule))
    for mine, other in zip(*found, strict=True):
        assert mine == pytest.approx(other, abs=1e-5)


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
@pytest.mark.timeout(300)
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
