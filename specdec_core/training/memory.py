"""What a training will need in memory, before it starts, and what there is."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import torch
from torch import Tensor

from specdec_core.errors import ConfigError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import TrainableDraft
from specdec_core.training.losses.bounded import DEFAULT_CHUNKS
from specdec_core.training.objective import Objective, autocast
from specdec_core.training.outcome import MemoryEstimate
from specdec_core.training.sharding import BlockDraft
from specdec_core.training.workers import trainable

# Draft's and target's logits of a chunk of rows, their probabilities, one gradient and one spare.
_CHUNK_COPIES = 6
_NUM_MOMENTS = 2
_CGROUP = Path("/sys/fs/cgroup")


def estimate_memory(
    draft: TrainableDraft,
    objectives: tuple[Objective, ...],
    sample: TrainingBatch,
    *,
    micro_batch_tokens: int,
    is_autocast: bool,
    num_shards: int = 1,
) -> MemoryEstimate:
    """Return the bytes that one worker will hold at its peak.

    What the backward pass needs is measured on two short pieces of a sequence and continued
    linearly. Estimates were within a factor of 1.5 of what tiny trainings held; memory of the
    interpreter and its libraries is not counted.

    Args:
        draft: On its device, whole, before any step.
        objectives: Of both phases.
        sample: Any batch; its first sequence is measured.
        micro_batch_tokens: Most padded tokens of a micro-batch.
        is_autocast: Whether products are taken in bfloat16.
        num_shards: Workers that the blocks will be spread over, each with its part of gradients
            and moments; 1 where every worker holds all.
    """
    whole = trained_bytes(draft)
    spread = _block_bytes(draft) if num_shards > 1 else 0
    trained = whole - spread + -(-spread // num_shards)
    module = draft.module
    held = {id(t): _size(t) for t in (*module.parameters(), *module.buffers())}
    target, heads = objectives[0].target_head.weight, _heads(draft, sample)
    per_batch = _size(sample.hidden) + (0 if sample.taps is None else _size(sample.taps))
    widest = max(target.shape[0], *(head.shape[0] for head in heads))
    return MemoryEstimate(
        parameters=sum(held.values()),
        gradients=trained,
        optimizer=_NUM_MOMENTS * trained,
        reference=trained if any(one.needs_reference for one in objectives) else 0,
        target_head=_size(target),
        activations=_activation_bytes(draft, sample, micro_batch_tokens, is_autocast),
        loss=_CHUNK_COPIES * DEFAULT_CHUNKS.rows * widest * 4
        + sum(_size(head) for head in heads if head.requires_grad),
        batch=per_batch * micro_batch_tokens // sample.input_ids.numel(),
    )


def trained_bytes(draft: TrainableDraft) -> int:
    """Return the bytes of all weights that are trained, those of all workers together."""
    return sum(_size(p) for p in trainable(draft.module).values())


def _block_bytes(draft: TrainableDraft) -> int:
    """Return the trained bytes that FSDP spreads; 0 for a draft that it refuses."""
    blocks = draft.blocks if isinstance(draft, BlockDraft) else ()
    return sum(_size(p) for block in blocks for p in trainable(block).values())


def check_memory(estimate: MemoryEstimate, free_bytes: int, num_sharing: int = 1) -> None:
    """Check that a training fits into what is free.

    Args:
        estimate: Of one worker, whose parameters are in memory already.
        free_bytes: Free now.
        num_sharing: Workers that share it.

    Raises:
        ConfigError: if it does not; names every part and what to change.
    """
    needed = (estimate.total - estimate.parameters - estimate.target_head) * num_sharing
    if needed > free_bytes:
        raise ConfigError(
            f"training needs {estimate.describe()} per worker, {needed / 2**20:.0f} MiB more than "
            f"is held by {num_sharing} workers now, but {free_bytes / 2**20:.0f} MiB are free: "
            "lower micro_batch_tokens, train fewer workers on this machine, or a smaller draft"
        )


def free_memory(device: torch.device) -> int:
    """Return the bytes free on a device; on the CPU within the limit of this process's group."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    limit, used = _read_number("memory.max"), _read_number("memory.current")
    if limit is not None and used is not None:
        free = min(free, max(limit - used + _file_cache_bytes(), 0))
    return free


def give_back_memory(device: torch.device) -> None:
    """Hand memory that was freed back to the system, where the C library can be asked to.

    Micro-batches differ in shape, and glibc keeps what one left in pieces that the next does not
    fit: a training on the CPU would hold much more than it needs.
    """
    if device.type == "cpu" and sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, musl has not
        if trim is not None:
            trim(0)


def peak_memory(device: torch.device) -> int:
    """Return the most bytes this process has held: on its GPU, or of its resident set."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    import resource  # not there on every system, and asked once

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _activation_bytes(
    draft: TrainableDraft, sample: TrainingBatch, num_tokens: int, is_autocast: bool
) -> int:
    """Return what the backward pass of `num_tokens` needs, by a line through two short passes."""
    longest = max(int(sample.lengths[0]), 2)
    sizes = (max(longest // 2, 1), longest)
    short, long = (_kept_bytes(draft, _piece(sample, size), is_autocast) for size in sizes)
    slope = max(long - short, 0) / (sizes[1] - sizes[0])
    return int(long + slope * max(num_tokens - sizes[1], 0))


def _kept_bytes(draft: TrainableDraft, batch: TrainingBatch, is_autocast: bool) -> int:
    """Return the bytes that autograd keeps of one forward pass, weights left out."""
    kept: dict[int, int] = {}
    module = draft.module
    own = {t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        autocast(batch, is_autocast),
    ):
        output = draft.forward(batch)
    # What goes into the head is kept by the loss, with its gradient.
    return sum(kept.values()) + sum(2 * _size(one.hidden) for one in output.passes)


def _piece(batch: TrainingBatch, num_tokens: int) -> TrainingBatch:
    """Return the first tokens of the first sequence, repeated where it is shorter."""
    index = torch.arange(num_tokens, device=batch.input_ids.device) % int(batch.lengths[0])
    return replace(
        batch,
        input_ids=batch.input_ids[:1, index],
        response_mask=batch.response_mask[:1, index],
        lengths=torch.full_like(batch.lengths[:1], num_tokens),
        hidden=batch.hidden[:1, index],
        taps=None if batch.taps is None else batch.taps[:1, index],
        sample_ids=batch.sample_ids[:1],
    )


def _heads(draft: TrainableDraft, sample: TrainingBatch) -> list[Tensor]:
    """Return the distinct heads of the draft's passes."""
    output = draft.forward(_piece(sample, 8))
    weights: Mapping[int, Tensor] = {id(one.head.weight): one.head.weight for one in output.passes}
    return list(weights.values())


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _file_cache_bytes() -> int:
    """Return what the process group's limit counts but gives back when asked: cached files."""
    try:
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    counts = dict(line.split() for line in lines)
    return sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))


def _read_number(name: str) -> int | None:
    try:
        return int((_CGROUP / name).read_text())
    except (OSError, ValueError):
        return None  # no such group, or no limit
