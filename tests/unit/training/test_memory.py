"""The estimate of memory against what a training really holds, tensor by tensor."""

from __future__ import annotations

import gc
import math
import platform
from pathlib import Path

import psutil
import pytest
import torch

from specdec_core.errors import ConfigError
from specdec_core.training import memory
from specdec_core.training.memory import (
    check_memory,
    estimate_memory,
    free_memory,
    give_back_memory,
    peak_memory,
    trained_bytes,
)
from specdec_core.training.outcome import MemoryEstimate
from tests.live_bytes import LiveBytes
from tests.tiny_training import (
    MemorySource,
    config_of,
    make_samples,
    make_trainer,
    objective,
    tiny_draft,
)

STATED_FACTOR = 1.5


def test_the_estimate_is_within_its_factor_of_a_measured_training(tmp_path: Path) -> None:
    """Long sequences, so that activations matter, and a model whose weights matter too."""
    generator_samples = make_samples(12)
    for name, sample in generator_samples.items():
        repeat = 12
        generator_samples[name] = type(sample)(
            sample.token_ids.repeat(repeat), 2, sample.hidden.repeat(repeat, 1)
        )
    tokens = 1024
    source = MemorySource(generator_samples, micro_batch_tokens=tokens, batch_size=8)
    draft = tiny_draft(tmp_path, hidden_size=64, intermediate_size=128)
    goal = objective("kl+0.1eal")
    sample = source.validation_batches(rank=0, num_workers=1)[0]
    estimate = estimate_memory(draft, (goal,), sample, micro_batch_tokens=tokens, is_autocast=False)
    gc.collect()
    trainer = make_trainer(tmp_path, config_of(num_epochs=2), source, draft=draft)
    with LiveBytes() as live:
        trainer._step()
        trainer._step()
    held = live.peak + estimate.parameters
    assert held / STATED_FACTOR < estimate.total < held * STATED_FACTOR


def test_weights_gradients_and_moments_are_counted_exactly(tmp_path: Path) -> None:
    draft, source = tiny_draft(tmp_path), MemorySource(make_samples(12))
    sample = source.validation_batches(rank=0, num_workers=1)[0]
    numbers = sum(p.numel() for p in draft.module.parameters())
    for loss, has_reference in (("kl", False), ("kl+0.1grpo", True)):
        estimate = estimate_memory(
            draft, (objective(loss),), sample, micro_batch_tokens=64, is_autocast=False
        )
        assert estimate.gradients == 8 * numbers
        assert estimate.optimizer == 16 * numbers
        assert estimate.reference == (8 * numbers if has_reference else 0)


def test_blocks_that_are_spread_cost_a_worker_its_part(tmp_path: Path) -> None:
    """Embedding, head and last norm stay whole; the rest of 3 workers' sums is rounded up."""
    draft, source = tiny_draft(tmp_path), MemorySource(make_samples(12))
    sample = source.validation_batches(rank=0, num_workers=1)[0]
    whole = sum(p.numel() for p in draft.module.parameters())
    in_blocks = sum(
        p.numel() for name, p in draft.module.named_parameters() if ".layers." in f".{name}"
    )
    assert 0 < in_blocks < whole
    estimate = estimate_memory(
        draft,
        (objective("kl+0.1grpo"),),
        sample,
        micro_batch_tokens=64,
        is_autocast=False,
        num_shards=3,
    )
    held = 8 * (whole - in_blocks) + math.ceil(8 * in_blocks / 3)
    assert (estimate.gradients, estimate.optimizer, estimate.reference) == (held, 2 * held, held)
    assert trained_bytes(draft) == 8 * whole


def estimate_of(mib: int) -> MemoryEstimate:
    parts = dict.fromkeys(MemoryEstimate.model_fields, 0)
    return MemoryEstimate(**{**parts, "parameters": 7 * 2**20, "gradients": mib * 2**20})


def test_what_does_not_fit_is_refused_with_numbers() -> None:
    check_memory(estimate_of(100), 200 * 2**20, num_sharing=2)
    with pytest.raises(ConfigError) as caught:
        check_memory(estimate_of(100), 199 * 2**20, num_sharing=2)
    message = str(caught.value)
    assert "107 MiB (parameters 7, gradients 100" in message
    assert "200 MiB more" in message
    assert "199 MiB are free" in message
    assert "lower micro_batch_tokens" in message


def test_a_limit_of_the_process_group_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    unlimited = free_memory(torch.device("cpu"))
    (tmp_path / "memory.current").write_text("1000")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(torch.device("cpu")) > 5000 < unlimited
    (tmp_path / "memory.max").write_text("6000\n")
    assert free_memory(torch.device("cpu")) == 5000
    (tmp_path / "memory.stat").write_text("anon 300\nactive_file 200\ninactive_file 50\n")
    assert free_memory(torch.device("cpu")) == 5250


def test_the_peak_of_this_process_is_more_than_torch_alone_takes() -> None:
    assert peak_memory(torch.device("cpu")) > 50 * 2**20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc")
def test_memory_that_was_freed_goes_back_to_the_system() -> None:
    process = psutil.Process()
    # Pieces of 64 KiB, below what is mapped alone; every hundredth stays and pins those beside it.
    pieces = [torch.ones(2**14) for _ in range(1600)]
    full = process.memory_info().rss
    kept = pieces[::100]
    del pieces
    gc.collect()
    give_back_memory(torch.device("cpu"))
    assert full - process.memory_info().rss > 1600 * 2**16 * 0.5
    assert len(kept) == 16
