"""Sharing one model between workers: gradients added up, or blocks held in parts (FSDP)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from specdec_core.errors import ConfigError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import TrainableDraft
from specdec_core.training.workers import Workers


@runtime_checkable
class BlockDraft(Protocol):
    """A draft with blocks that only its own forward pass reads, each called as a module."""

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The blocks, in order; embedding and head are not among them."""
        ...


def shard_blocks(draft: TrainableDraft, workers: Workers) -> None:
    """Spread the weights of a draft's blocks over the workers; the rest stays whole on each.

    The head is needed whole by losses, and the embedding with it where they are tied.

    Raises:
        ConfigError: if the draft has no blocks to spread.
    """
    if not isinstance(draft, BlockDraft):
        raise ConfigError(
            "sharding fsdp spreads the blocks of a draft model over workers, but this kind of "
            "draft has none: use sharding ddp"
        )
    mesh = init_device_mesh(workers.device.type, (workers.num,))
    for block in draft.blocks:
        # Every block is a root of its own, which would stay whole after its forward pass.
        shard = fully_shard(block, mesh=mesh, reshard_after_forward=True)
        shard.set_gradient_divide_factor(1.0)  # losses are shares of the mean already
        shard.set_force_sum_reduction_for_comms(True)  # gloo has no other for float32


def is_sharded(draft: TrainableDraft) -> bool:
    """Return whether workers hold parts of the draft."""
    return any(isinstance(module, FSDPModule) for module in draft.module.modules())


def add_up_gradients(parameters: Mapping[str, nn.Parameter], workers: Workers) -> None:
    """Add up the gradients of what every worker holds whole; shards were added up on the way."""
    gradients = []
    for parameter in parameters.values():
        if isinstance(parameter, DTensor):
            continue
        if parameter.grad is None:  # no micro-batch here reached it, others may have
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    workers.add_up(gradients)


def equally_many(
    batches: Iterable[TrainingBatch], draft: TrainableDraft, workers: Workers
) -> Iterator[TrainingBatch]:
    """Yield batches, and empty ones up to the largest number of any worker if it is sharded.

    Every pass through shards is an exchange in which all workers take part. How many batches there
    are is not known before, as they may be made one by one: workers agree on each.
    """
    if not is_sharded(draft):
        yield from batches
        return
    own = iter(batches)
    while True:
        batch = next(own, None)
        if not workers.any(batch is not None):
            return
        yield _empty_batch(workers.device) if batch is None else batch


def _empty_batch(device: torch.device) -> TrainingBatch:
    return TrainingBatch(
        input_ids=torch.zeros(1, 2, dtype=torch.int64, device=device),
        response_mask=torch.zeros(1, 2, dtype=torch.bool, device=device),
        lengths=torch.full((1,), 2, device=device),
        hidden=torch.zeros(1, 2, 1, device=device),
        taps=None,
        sample_ids=(),
    )
