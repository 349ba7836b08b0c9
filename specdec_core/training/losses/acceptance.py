"""Expected acceptance of a draft under teacher forcing, as counts that add up.

Nothing is decoded: windows of the target's own responses stand for proposals.

Source: EAL (arXiv 2609.24150), expected acceptance length.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig
from specdec_core.training.losses.counts import Places
from specdec_core.training.losses.terms import Scores
from specdec_core.training.windows import reach


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """Sums over windows and positions; add batches and workers up, then divide.

    Attributes:
        windows: ``[]`` float64: windows summed over.
        greedy: ``[gamma]`` float64: windows whose first k drafts are the target's likeliest
            tokens, at index k - 1.
        sampling: ``[gamma]`` float64: the same for drawn drafts under rejection sampling at the
            loss's temperature, expected.
        positions: ``[J]`` float64: predicted positions of each pass.
        greedy_positions: ``[J]`` float64: those whose likeliest draft is the target's.
        sampling_positions: ``[J]`` float64: their summed overlap of both distributions.
    """

    windows: Tensor
    greedy: Tensor
    sampling: Tensor
    positions: Tensor
    greedy_positions: Tensor
    sampling_positions: Tensor

    def __add__(self, other: AcceptanceCounts) -> AcceptanceCounts:
        """Return the counts of both together."""
        return AcceptanceCounts(
            *(a + b for a, b in zip(self._parts(), other._parts(), strict=True))
        )

    def to_tensor(self) -> Tensor:
        """Return all counts as one vector, to be summed over workers."""
        return torch.cat([part.reshape(-1) for part in self._parts()])

    def like(self, counts: Tensor) -> AcceptanceCounts:
        """Return the counts that `to_tensor` made a vector of, in the shapes of these."""
        sizes = [part.numel() for part in self._parts()]
        parts = zip(torch.split(counts, sizes), self._parts(), strict=True)
        return AcceptanceCounts(*(values.reshape(part.shape) for values, part in parts))

    def expected_length(self, *, is_greedy: bool) -> float:
        """Return accepted tokens per window, the bonus token not counted; 0 without windows."""
        return sum(self.reached(is_greedy=is_greedy))

    def reached(self, *, is_greedy: bool) -> list[float]:
        """Return the share of windows that accept at least k tokens, k = 1 .. gamma."""
        sums = self.greedy if is_greedy else self.sampling
        return [float(value) for value in sums / self.windows.clamp(min=1.0)]

    def by_depth(self, *, is_greedy: bool) -> list[float]:
        """Return the share accepted at each depth of windows that got there; 0 if none did."""
        sums = (self.greedy if is_greedy else self.sampling).tolist()
        before = [float(self.windows), *sums[:-1]]
        return [here / there if there else 0.0 for here, there in zip(sums, before, strict=True)]

    def _parts(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]


def count_acceptance(scores: Scores, places: Places, config: LossConfig) -> AcceptanceCounts:
    """Return the acceptance that scores stand for.

    Args:
        scores: With overlap and the target's likeliest tokens filled in.
        places: Of the batch.
        config: Gives the window.
    """
    chances = [scores.is_target, scores.overlap.detach()]
    greedy, sampling = (torch.where(places.masks, c.to(torch.float64), 0.0) for c in chances)
    return AcceptanceCounts(
        windows=places.windows.sum().to(torch.float64),
        greedy=_over_windows(greedy, places, config),
        sampling=_over_windows(sampling, places, config),
        positions=places.masks.sum((1, 2)).to(torch.float64),
        greedy_positions=greedy.sum((1, 2)),
        sampling_positions=sampling.sum((1, 2)),
    )


def _over_windows(chances: Tensor, places: Places, config: LossConfig) -> Tensor:
    return torch.where(places.windows, reach(chances, config.gamma), 0.0).sum((1, 2))
