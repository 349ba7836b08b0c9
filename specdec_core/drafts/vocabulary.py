"""Narrowed vocabularies: which of the target's ids a draft's head has rows for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from specdec_core.errors import ConfigError


class DraftVocabulary:
    """A strictly increasing list of target ids: row v of the draft's head is id ``target_ids[v]``.

    The order makes ties fall alike before and after the ids are mapped: the lowest draft id is the
    lowest target id. The target's other ids have probability 0 to the draft.

    Args:
        target_ids: ``[V_d]`` integers, or a sequence of them.

    Raises:
        ConfigError: if there are none, or they are negative or not strictly increasing.

    Source: FR-Spec (Zhao et al. 2025) and EAGLE-3's released checkpoints, whose ``d2t`` holds
    ``target_ids[v] - v``.
    """

    def __init__(self, target_ids: Tensor | Sequence[int]) -> None:
        ids = torch.as_tensor(target_ids, dtype=torch.int64)
        is_list = ids.ndim == 1 and len(ids) > 0
        if not is_list or int(ids[0]) < 0 or bool((ids[1:] <= ids[:-1]).any()):
            raise ConfigError(
                "a draft vocabulary is a list of target ids, each larger than the one before and "
                f"none negative, but shape {tuple(ids.shape)} was given that is not: sort the ids "
                "and drop repeated ones"
            )
        self.target_ids = ids

    @classmethod
    def most_frequent(
        cls, counts: Tensor, size: int, *, always: Collection[int] = ()
    ) -> DraftVocabulary:
        """Return the `size` ids counted most often, of equally frequent ones the lowest.

        Args:
            counts: ``[V]`` how often the target's ids were seen.
            size: V_d, at most V.
            always: Ids that are in it whatever their count, such as stop tokens.

        Raises:
            ConfigError: if `size` is more than there are ids, or less than `always` has.
        """
        wanted = sorted(set(always))
        if not max(1, len(wanted)) <= size <= len(counts):
            raise ConfigError(
                f"a draft vocabulary of {size} ids cannot be taken from {len(counts)} with "
                f"{len(wanted)} of them always in it: choose a size in between"
            )
        ranks = counts.to(torch.float64, copy=True)
        ranks[wanted] = torch.inf
        order = torch.argsort(ranks, descending=True, stable=True)[:size]
        return cls(order.sort().values)

    @property
    def offsets(self) -> Tensor:
        """How much larger the target's id is than the draft's, ``[V_d]``."""
        return self.target_ids - torch.arange(len(self), device=self.target_ids.device)

    def __len__(self) -> int:
        """Return the number of ids, V_d."""
        return len(self.target_ids)

    def check_fits(self, vocab_size: int) -> None:
        """Check that the target has all these ids.

        Raises:
            ConfigError: if its vocabulary is smaller.
        """
        last = int(self.target_ids[-1])
        if last >= vocab_size:
            raise ConfigError(
                f"the draft vocabulary has target id {last}, but the target has ids 0 to "
                f"{vocab_size - 1}: the draft was made for another target"
            )

    def to(self, device: torch.device) -> DraftVocabulary:
        """Return it with its ids on `device`."""
        moved = DraftVocabulary.__new__(DraftVocabulary)
        moved.target_ids = self.target_ids.to(device)
        return moved

    def scatter(self, rows: Tensor, vocab_size: int) -> Tensor:
        """Return logits or log-probabilities over the target's ids, minus infinity elsewhere.

        Args:
            rows: ``[..., V_d]``.
            vocab_size: The target's V.

        Returns:
            ``[..., V]``.
        """
        full = rows.new_full((*rows.shape[:-1], vocab_size), -torch.inf)
        full[..., self.target_ids] = rows
        return full
