"""How many positions, windows and groups a batch has: the denominators of every loss.

They depend on masks alone. A trainer counts all micro-batches of a step on all workers first, adds
the counts up, and hands the sum to each loss, which then returns its share of the mean over the
whole step: gradients of micro-batches and workers are added, never averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig
from specdec_core.errors import ConfigError
from specdec_core.training.alignment import prediction_mask
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftPass
from specdec_core.training.grpo import count_groups
from specdec_core.training.windows import valid_windows


@dataclass(frozen=True, slots=True)
class PassRows:
    """Which rows one draft depth has, without what it makes of them.

    Attributes:
        shift: Row t predicts token ``t + shift``.
        mask: ``[B, N]`` bool by row: rows with a prediction; None for all.
        target_ids: ``[V_d]`` int64: target's id of each draft id; None where they are equal.
        vocab_size: Ids below it can be drafted; None for all. Ignored beside `target_ids`.
    """

    shift: int = 1
    mask: Tensor | None = None
    target_ids: Tensor | None = None
    vocab_size: int | None = None

    @classmethod
    def of(cls, draft_pass: DraftPass) -> PassRows:
        """Return the rows of a pass that was made."""
        head = draft_pass.head
        return cls(draft_pass.shift, draft_pass.mask, head.target_ids, head.weight.shape[0])


@dataclass(frozen=True, slots=True)
class Counts:
    """Denominators; they add up over micro-batches and workers.

    Attributes:
        positions: ``[J]`` float64: predicted response positions of each pass.
        labels: ``[J]`` float64: those whose token the draft has in its vocabulary.
        windows: ``[]`` float64: windows of response positions.
        groups: ``[]`` float64: groups of windows that grpo compares; 0 without it.
    """

    positions: Tensor
    labels: Tensor
    windows: Tensor
    groups: Tensor

    def __add__(self, other: Counts) -> Counts:
        """Return the counts of both together."""
        return Counts.from_tensor(self.to_tensor() + other.to_tensor())

    def to_tensor(self) -> Tensor:
        """Return all counts as one vector ``[2 J + 2]``, to be summed over workers."""
        return torch.cat([self.positions, self.labels, self.windows[None], self.groups[None]])

    @classmethod
    def from_tensor(cls, counts: Tensor) -> Counts:
        """Return the counts that `to_tensor` made a vector of."""
        num_passes = (len(counts) - 2) // 2
        return cls(counts[:num_passes], counts[num_passes:-2], counts[-2], counts[-1])


@dataclass(frozen=True, slots=True)
class Places:
    """Where a batch has something to learn, all by predicted position.

    Attributes:
        masks: ``[J, B, N]`` bool: response positions that a pass predicts.
        labels: ``[J, B, N]`` int64: the token as a draft id; -1 where the draft has none.
        windows: ``[B, N]`` bool: positions that start a window.
    """

    masks: Tensor
    labels: Tensor
    windows: Tensor

    @property
    def has_label(self) -> Tensor:
        """``[J, B, N]`` bool: predicted positions whose token the draft has in its vocabulary."""
        return self.masks & (self.labels >= 0)


def find_places(
    config: LossConfig,
    batch: TrainingBatch,
    rows: Sequence[PassRows],
    document_ids: Tensor | None = None,
) -> Places:
    """Return where a batch has something to learn.

    Args:
        config: Gives the window.
        batch: Tokens and response mask.
        rows: Of each pass, by draft depth.
        document_ids: ``[B, N]`` int where sequences are packed.

    Raises:
        ConfigError: if there is no pass, or a shift is below 1.
    """
    if not rows or min(row.shift for row in rows) < 1:
        raise ConfigError(
            f"passes with shifts {[row.shift for row in rows]}: give at least one pass, each "
            "predicting tokens at least 1 place behind its rows"
        )
    mask = batch.response_mask.bool()
    masks = [prediction_mask(mask, row.shift, row.mask, document_ids) for row in rows]
    labels = [draft_labels(batch.input_ids, row) for row in rows]
    stacked = torch.stack(masks)
    windows = valid_windows(stacked, config.gamma, document_ids)
    return Places(stacked, torch.stack(labels), windows)


def draft_labels(token_ids: Tensor, rows: PassRows) -> Tensor:
    """Return tokens as draft ids, -1 where the draft cannot say them; the shape of `token_ids`."""
    if rows.target_ids is None:
        if rows.vocab_size is None:
            return token_ids
        return token_ids.masked_fill(token_ids >= rows.vocab_size, -1)
    known, order = rows.target_ids.sort()
    at = torch.searchsorted(known, token_ids).clamp(max=len(known) - 1)
    return torch.where(known[at] == token_ids, order[at], -1)


def count_places(config: LossConfig, places: Places) -> Counts:
    """Return the counts of places that were found."""
    num_groups = count_groups(places.windows, config) if "grpo" in config.names else 0
    return Counts(
        positions=places.masks.sum((1, 2)).to(torch.float64),
        labels=places.has_label.sum((1, 2)).to(torch.float64),
        windows=places.windows.sum().to(torch.float64),
        groups=torch.tensor(float(num_groups), dtype=torch.float64, device=places.windows.device),
    )


def count(
    config: LossConfig,
    batch: TrainingBatch,
    rows: Sequence[PassRows],
    document_ids: Tensor | None = None,
) -> Counts:
    """Return a batch's denominators; no model is asked.

    Args:
        config: Gives the window and groups.
        batch: Tokens and response mask.
        rows: Of each pass, by draft depth, as the draft's passes will have them.
        document_ids: ``[B, N]`` int where sequences are packed.

    Raises:
        ConfigError: if there is no pass, or a shift is below 1.
    """
    return count_places(config, find_places(config, batch, rows, document_ids))
