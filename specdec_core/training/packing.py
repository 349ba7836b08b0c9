"""Which samples a step trains on, and in which micro-batches: pure functions of numbers.

Nothing is drawn ahead and nothing is consumed, so a data position is the pair (epoch, step), and
a run resumed there reads what the uninterrupted one would have read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specdec_core.errors import ConfigError
from specdec_core.randomness import derive_seed, shuffling_generator

MicroBatches = tuple[tuple[str, ...], ...]
"""Sample ids of each micro-batch, the longest sequences first."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The order of training.

    Args:
        lengths: Tokens per sample, by sample id; their order is of no matter.
        batch_size: Samples per step, over all workers; the last step of an epoch may have fewer.
        micro_batch_tokens: Most padded tokens of a micro-batch.
        seed: Of the order.

    Raises:
        ConfigError: if there are no samples, or one is longer than a micro-batch.
    """

    lengths: Mapping[str, int]
    batch_size: int
    micro_batch_tokens: int
    seed: int

    def __post_init__(self) -> None:
        check_fits(self.lengths, self.micro_batch_tokens)

    @property
    def num_steps(self) -> int:
        """Steps of one epoch."""
        return -(-len(self.lengths) // self.batch_size)

    def step_samples(self, epoch: int, step: int) -> tuple[str, ...]:
        """Return the sample ids of one global batch.

        Args:
            epoch: From 0; every epoch has its own order of all samples.
            step: Of the epoch, 0 .. `num_steps` - 1.
        """
        if not 0 <= step < self.num_steps:
            raise ConfigError(f"step {step} of an epoch of {self.num_steps} steps")
        order = sorted(self.lengths)
        shuffling_generator(derive_seed(self.seed, "epoch", epoch)).shuffle(order)
        return tuple(order[step * self.batch_size : (step + 1) * self.batch_size])

    def micro_batches(
        self, epoch: int, step: int, rank: int = 0, world_size: int = 1
    ) -> MicroBatches:
        """Return what worker `rank` of `world_size` runs for one step.

        Samples are dealt out by length, there and back, so that workers have like amounts of
        work. Workers may have different numbers of micro-batches, and none at all where a batch
        has fewer samples than there are workers.
        """
        own = share_of(self.step_samples(epoch, step), self.lengths, rank, world_size)
        return pack(own, self.lengths, self.micro_batch_tokens)


def share_of(
    sample_ids: Iterable[str], lengths: Mapping[str, int], rank: int, world_size: int
) -> tuple[str, ...]:
    """Return the samples of worker `rank`: dealt out by length, there and back."""
    ordered = sorted(sample_ids, key=lambda each: (-lengths[each], each))
    return tuple(each for index, each in enumerate(ordered) if _dealt_to(index, world_size) == rank)


def _dealt_to(index: int, world_size: int) -> int:
    turn, place = divmod(index, world_size)
    return place if turn % 2 == 0 else world_size - 1 - place


def pack(
    sample_ids: Iterable[str], lengths: Mapping[str, int], micro_batch_tokens: int
) -> MicroBatches:
    """Return the samples as micro-batches of like lengths.

    Args:
        sample_ids: Any order.
        lengths: Tokens per sample.
        micro_batch_tokens: Most padded tokens: samples times the longest of them.
    """
    packed: list[list[str]] = []
    room = 0
    for each in sorted(sample_ids, key=lambda each: (-lengths[each], each)):
        if room == 0:
            packed.append([])
            # Its first sample is its longest.
            room = max(1, micro_batch_tokens // lengths[each])
        packed[-1].append(each)
        room -= 1
    return tuple(map(tuple, packed))


def check_fits(lengths: Mapping[str, int], micro_batch_tokens: int) -> None:
    """Check that there are samples and each fits a micro-batch.

    Raises:
        ConfigError: if not.
    """
    if not lengths:
        raise ConfigError("there are no samples to train on: give more prompts")
    longest = max(lengths, key=lambda each: lengths[each])
    if lengths[longest] > micro_batch_tokens:
        raise ConfigError(
            f"sample {longest!r} has {lengths[longest]} tokens, a micro-batch at most "
            f"{micro_batch_tokens}: raise micro_batch_tokens or lower max_tokens"
        )


def split_prompts(
    prompt_ids: Iterable[str], num_validation: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the prompts to train on and those held out for validation.

    Held out are those whose SHA-256 is lowest: a prompt stays on its side however many others
    come or go, but for those at the border.

    Raises:
        ConfigError: if none would be left to train on.
    """
    ordered: Sequence[str] = sorted(set(prompt_ids), key=_digest)
    if num_validation >= len(ordered):
        raise ConfigError(
            f"{num_validation} of {len(ordered)} prompts shall be held out for validation: lower "
            "num_validation or give more prompts"
        )
    return frozenset(ordered[num_validation:]), frozenset(ordered[:num_validation])


def _digest(prompt_id: str) -> str:
    return hashlib.sha256(f"validation\0{prompt_id}".encode()).hexdigest()
