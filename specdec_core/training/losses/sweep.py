"""The sweeps of the memory-bounded loss over chunks of predicted positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdec_core.training.alignment import row_of
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.common import Prepared, common_size, compute_dtype
from specdec_core.training.losses.comparison import Comparison
from specdec_core.training.losses.gradients import Gradients
from specdec_core.training.losses.rows import Chunks, Columns, RowLogits
from specdec_core.training.losses.terms import (
    ScoreName,
    Scores,
    rows_ahead,
    scores_read,
    scores_wanted,
    total_loss,
)


@dataclass(frozen=True, slots=True)
class Depth:
    """One draft depth and the columns that are compared at it.

    Attributes:
        made: The draft's pass.
        columns: Of the draft's head.
        target: The target's columns that stand for the same tokens.
        full: All columns of the target, where the draft's vocabulary is narrower; else None.
        reference: The reference's pass and its columns; None without one.
    """

    made: DraftPass
    columns: Columns
    target: Columns
    full: Columns | None
    reference: tuple[DraftPass, Columns] | None


def make_depths(
    passes: Sequence[DraftPass],
    reference: Sequence[DraftPass] | None,
    target_head: Head,
    chunks: Chunks,
) -> tuple[Depth, ...]:
    """Return the depths of a draft; heads that several share are converted once."""
    dtype = compute_dtype(passes[0].hidden.dtype)
    made: dict[tuple[int, int, int], Columns] = {}

    def columns(head: Head, ids: Tensor | None, size: int) -> Columns:
        key = (id(head.weight), id(ids), size)
        if key not in made:
            made[key] = Columns.of(head, ids, size, chunks, dtype)
        return made[key]

    depths = []
    num_target = target_head.weight.shape[0]
    for depth, one in enumerate(passes):
        ids = one.head.target_ids
        size = common_size(one.head.weight.shape[0], ids, num_target)
        before = reference[depth] if reference is not None else None
        depths.append(
            Depth(
                made=one,
                columns=columns(one.head, None, size),
                target=columns(target_head, ids, size),
                full=columns(target_head, None, num_target) if ids is not None else None,
                reference=(before, columns(before.head, None, size)) if before else None,
            )
        )
    return tuple(depths)


@dataclass(frozen=True, slots=True)
class _Scored:
    """One depth's rows of a chunk: the comparison, its positions, and how many are the chunk's."""

    comparison: Comparison
    positions: Tensor
    num_own: int


class Sweep:
    """Scores, and gradients of the loss, of one batch.

    Args:
        prepared: Where there is something to learn.
        depths: Of the draft.
        target_hidden: ``[B, N, h_t]``.
        measures_acceptance: Whether overlaps and matches are wanted even if no loss reads them.

    Attributes:
        scores: Filled in by `run`.
    """

    def __init__(
        self,
        prepared: Prepared,
        depths: Sequence[Depth],
        target_hidden: Tensor,
        *,
        measures_acceptance: bool,
    ) -> None:
        config, places = prepared.scene.config, prepared.scene.places
        self._prepared = prepared
        self._depths = depths
        self._target_rows = target_hidden.flatten(0, 1)
        self._positions = places.masks.any(0).flatten().nonzero()[:, 0]
        self._learned = scores_read(config)
        self._wanted = scores_wanted(config, measures_acceptance=measures_acceptance)
        self._finds_matches = measures_acceptance or "grpo" in config.names
        self._temperatures = {1.0, config.temperature}
        self.scores = Scores.zeros(places, depths[0].columns.dtype)

    def run(self, gradients: Gradients, num_rows: int) -> None:
        """Fill in all scores, and add up gradients where any are wanted.

        Args:
            gradients: Receives them.
            num_rows: Positions worked on together.
        """
        ahead = rows_ahead(self._prepared.scene.config)
        starts = range(0, len(self._positions), num_rows)
        if not gradients or ahead is None:
            for start in starts:
                self._score(start, start + num_rows, 0)
        if not gradients:
            return
        factors = self._factors() if ahead is None else None
        for start in starts:
            scored = self._score(start, start + num_rows, ahead or 0)
            own = factors if factors is not None else self._factors()
            for depth, found in enumerate(scored):
                self._add(depth, found, own, gradients)

    def _score(self, start: int, stop: int, ahead: int) -> list[_Scored]:
        """Score the positions of a chunk and some behind it, at every depth."""
        positions = self._positions[start : stop + ahead]
        hidden = self._target_rows[row_of(positions, 1)]
        rows: dict[int, RowLogits] = {}

        def target(columns: Columns) -> RowLogits:
            if id(columns) not in rows:
                rows[id(columns)] = RowLogits(hidden, columns, self._temperatures)
            return rows[id(columns)]

        return [
            self._score_depth(depth, positions, stop - start, target)
            for depth in range(len(self._depths))
        ]

    def _score_depth(
        self, number: int, positions: Tensor, num_own: int, target: Callable[[Columns], RowLogits]
    ) -> _Scored:
        depth, places = self._depths[number], self._prepared.scene.places
        chosen = places.masks[number].flatten()[positions]
        at = positions[chosen]
        comparison = Comparison(
            draft=self._rows(depth.made, depth.columns, at),
            target=target(depth.target).select(chosen),
            full=target(depth.full).select(chosen) if depth.full is not None else None,
            reference=self._rows(*depth.reference, at) if depth.reference is not None else None,
            labels=places.labels[number].flatten()[at],
            temperature=self._prepared.scene.config.temperature,
        )
        found = comparison.score(self._wanted)
        if self._finds_matches:
            found |= comparison.matches(depth.made.head.target_ids)
        for name, values in found.items():
            getattr(self.scores, name)[number].view(-1)[at] = values
        return _Scored(comparison, at, int(chosen[:num_own].sum()))

    def _rows(self, made: DraftPass, columns: Columns, positions: Tensor) -> RowLogits:
        hidden = made.hidden.flatten(0, 1)[row_of(positions, made.shift)]
        return RowLogits(hidden, columns, self._temperatures)

    def _factors(self) -> dict[ScoreName, Tensor]:
        """Return the derivative of the loss by each score, ``[J, B, N]``.

        It is final for positions whose windows are scored.
        """
        prepared = self._prepared
        with torch.enable_grad():
            leaves = {
                name: getattr(self.scores, name).clone().requires_grad_() for name in self._learned
            }
            scores = replace(self.scores, **leaves)
            total, _ = total_loss(scores, prepared.scene, prepared.denominators)
            found = torch.autograd.grad(total, list(leaves.values()))
        return dict(zip(leaves, found, strict=True))

    def _add(
        self,
        number: int,
        scored: _Scored,
        factors: Mapping[ScoreName, Tensor],
        gradients: Gradients,
    ) -> None:
        """Add one depth's gradient of the chunk's own rows."""
        made, columns = self._depths[number].made, self._depths[number].columns
        at, num_own = scored.positions[: scored.num_own], scored.num_own
        for_hidden = gradients.of(made.hidden)
        for_weight, for_bias = gradients.of(made.head.weight), gradients.of(made.head.bias)
        if not num_own or (for_hidden is None and for_weight is None and for_bias is None):
            return
        own = {name: values[number].flatten()[at] for name, values in factors.items()}
        hidden = scored.comparison.draft.hidden[:num_own].to(columns.dtype)
        back = torch.zeros_like(hidden)
        for part in columns.slices:
            by_logit = scored.comparison.gradient(part, num_own, own)
            if for_bias is not None:
                for_bias[part] += by_logit.sum(0)
            if for_hidden is not None:
                back += by_logit @ columns.weights(part)
            if for_weight is not None:
                _add_product(for_weight[part], by_logit.T, hidden)
        if for_hidden is not None:
            for_hidden.flatten(0, 1).index_add_(
                0, row_of(at, made.shift), back.to(for_hidden.dtype)
            )


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a matrix product in place, without a tensor of its size where types allow."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right
