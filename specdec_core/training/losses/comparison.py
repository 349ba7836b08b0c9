"""Scores of a few rows, and the closed-form gradient of any sum of them for the draft's logits.

With p of the target, q of the draft, and tilde for temperature T, the derivatives by logit z_v are

    surprise    q_v - 1[v = label]
    kl          q_v - p_v
    reverse_kl  q_v (log q_v - log p_v - reverse_kl)
    overlap     q~_v (1[q~_v < p~_v] - s) / T   with s = sum of q~ where q~ < p~
    chosen      1[v = likeliest] - q_v

Source: EAL (arXiv 2609.24150) for windows of them; LK losses for the overlap's.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from specdec_core.training.losses.common import LOWEST_LOGIT
from specdec_core.training.losses.rows import RowLogits
from specdec_core.training.losses.terms import ScoreName


class Comparison:
    """Predictions of one draft depth for a few tokens beside the target's.

    Args:
        draft: The draft's rows.
        target: The target's rows for the same tokens, in the draft's columns.
        full: The target's rows in all its columns, where the draft has fewer; None where it has
            the same.
        reference: The reference's rows; None unless grpo compares with them.
        labels: ``[n]`` int64: the tokens as columns; -1 where there is none.
        temperature: Of the overlap.
    """

    def __init__(
        self,
        draft: RowLogits,
        target: RowLogits,
        full: RowLogits | None,
        reference: RowLogits | None,
        labels: Tensor,
        temperature: float,
    ) -> None:
        self.draft = draft
        self.target = target
        self.labels = labels
        self._full = full
        self._reference = reference
        self._temperature = temperature
        self._inner = labels.new_zeros(0)
        self._reverse_kl = labels.new_zeros(0)

    def score(self, wanted: frozenset[ScoreName]) -> dict[str, Tensor]:
        """Return the wanted scores by name, ``[n]`` each, and the reference's beside `chosen`."""
        names = [*sorted(wanted), *(["reference_chosen"] if self._reference is not None else [])]
        blank = torch.zeros_like(self.labels, dtype=self.draft.columns.dtype)
        found = {name: blank.clone() for name in names}
        self._inner = blank
        for part in self.draft.columns.slices:
            if "kl" in wanted:
                found["kl"] += self._divergence(self.target, self.draft, part)
            if "reverse_kl" in wanted:
                found["reverse_kl"] += self._divergence(self.draft, self.target, part)
            if "overlap" in wanted:
                found["overlap"] += self._overlap(part)
            if "surprise" in wanted:
                found["surprise"] -= _picked(self.draft.log_probs(part, 1.0), self.labels, part)
            if "chosen" in wanted:
                likeliest = self.draft.likeliest()
                found["chosen"] += _picked(self.draft.log_probs(part, 1.0), likeliest, part)
                if self._reference is not None:
                    log_probs = self._reference.log_probs(part, 1.0)
                    found["reference_chosen"] += _picked(log_probs, likeliest, part)
        self._reverse_kl = found.get("reverse_kl", blank)
        return found

    def matches(self, target_ids: Tensor | None) -> dict[str, Tensor]:
        """Return whose likeliest token is the target's, by name, ``[n]`` bool each.

        Args:
            target_ids: ``[V_d]``: the target's id of each column; None where they are equal.
        """
        found = {"is_target": self.draft.likeliest()}
        if self._reference is not None:
            found["reference_is_target"] = self._reference.likeliest()
        if self._full is None or target_ids is None:
            return {name: ids == self.target.likeliest() for name, ids in found.items()}
        return {name: target_ids[ids] == self._full.likeliest() for name, ids in found.items()}

    def gradient(self, part: slice, num_rows: int, factors: Mapping[ScoreName, Tensor]) -> Tensor:
        """Return the derivative of a sum of scores for the draft's logits, after `score`.

        Args:
            part: Slice of the columns.
            num_rows: Rows, the first ones, that have a factor.
            factors: ``[n]`` by score: what each row's score is multiplied by in the sum.

        Returns:
            ``[num_rows, v]``, a tensor of its own.
        """
        kept = slice(0, num_rows)
        by_row = {name: values[:num_rows, None] for name, values in factors.items()}
        found = self._overlap_gradient(part, kept, by_row.get("overlap"))
        if by_row.keys() - {"overlap"}:
            self._add_rest(found, part, kept, by_row)
        floor = self._floor(part, kept)
        return found if floor is None else found.masked_fill_(floor, 0.0)

    def _divergence(self, mine: RowLogits, other: RowLogits, part: slice) -> Tensor:
        difference = mine.log_probs(part, 1.0) - other.log_probs(part, 1.0)
        return difference.mul_(mine.probs(part, 1.0)).sum(-1)

    def _target_probs(self, part: slice) -> Tensor:
        """The target's own probabilities: what is outside the columns keeps its share."""
        if self._full is None:
            return self.target.probs(part, self._temperature)
        normaliser = self._full.normaliser(self._temperature)[:, None]
        return (self.target.raw(part) / self._temperature).sub_(normaliser).exp_()

    def _overlap(self, part: slice) -> Tensor:
        q, p = self.draft.probs(part, self._temperature), self._target_probs(part)
        smaller = torch.minimum(q, p)
        overlap = smaller.sum(-1)
        self._inner = self._inner + smaller.masked_fill_(q >= p, 0.0).sum(-1)
        return overlap

    def _overlap_gradient(self, part: slice, kept: slice, factor: Tensor | None) -> Tensor:
        if factor is None:
            shape = (kept.stop, part.stop - part.start)
            return torch.zeros(shape, dtype=self.draft.columns.dtype, device=self.labels.device)
        q = self.draft.probs(part, self._temperature)[kept]
        below = q < self._target_probs(part)[kept]
        scale, inner = factor / self._temperature, self._inner[kept, None]
        return torch.where(below, scale * (1.0 - inner), -scale * inner).mul_(q)

    def _add_rest(
        self, found: Tensor, part: slice, kept: slice, by_row: Mapping[ScoreName, Tensor]
    ) -> None:
        q = self.draft.probs(part, 1.0)[kept]
        level = torch.zeros_like(next(iter(by_row.values())))
        if "kl" in by_row:
            level = level + by_row["kl"]
            found.addcmul_(self.target.probs(part, 1.0)[kept], by_row["kl"], value=-1.0)
        if "surprise" in by_row:
            level = level + by_row["surprise"]
            _add_at(found, self.labels[kept], part, -by_row["surprise"])
        if "chosen" in by_row:
            level = level - by_row["chosen"]
            _add_at(found, self.draft.likeliest()[kept], part, by_row["chosen"])
        if "reverse_kl" in by_row:
            factor = by_row["reverse_kl"]
            level = level - factor * self._reverse_kl[kept, None]
            logs = self.draft.log_probs(part, 1.0)[kept] - self.target.log_probs(part, 1.0)[kept]
            found.addcmul_(logs.mul_(q), factor)
        found.addcmul_(q, level)

    def _floor(self, part: slice, kept: slice) -> Tensor | None:
        """Columns whose logit is fixed: a bias of minus infinity, read as the lowest logit."""
        if self.draft.columns.bias is None:
            return None
        return self.draft.raw(part)[kept] <= LOWEST_LOGIT


def _picked(values: Tensor, ids: Tensor, part: slice) -> Tensor:
    """Return each row's value ``[n, v]`` at its column; 0 for columns outside the slice."""
    here = (ids >= part.start) & (ids < part.stop)
    at = (ids - part.start).clamp(0, part.stop - part.start - 1)
    return torch.where(here, values.gather(1, at[:, None])[:, 0], 0.0)


def _add_at(values: Tensor, ids: Tensor, part: slice, added: Tensor) -> None:
    """Add ``[n, 1]`` to each row's column ``[n]``, where it is in the slice."""
    here = (ids >= part.start) & (ids < part.stop)
    at = (ids - part.start).clamp(0, part.stop - part.start - 1)
    values.scatter_add_(1, at[:, None], torch.where(here[:, None], added, 0.0))
