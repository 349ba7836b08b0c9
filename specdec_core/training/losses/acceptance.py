"""Expected acceptance of a draft under teacher forcing, as counts that add up.

Nothing is decoded: windows of the target's own responses stand for proposals.

Source: EAL (arXiv 2609.24150), expected acceptance length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig
from specdec_core.training.losses.counts import Places
from specdec_core.training.losses.terms import Scores
from specdec_core.training.windows import reach


@dataclass(frozen=True, slots=True)
class WindowAcceptance:
    """Sums over the windows of a batch; add batches and workers up, then divide by windows.

    Attributes:
        greedy: ``[gamma]`` float64: windows whose first k drafts are the target's likeliest
            tokens, at index k - 1.
        sampling: ``[gamma]`` float64: the same for drawn drafts under rejection sampling at the
            loss's temperature, expected.
    """

    greedy: Tensor
    sampling: Tensor


def window_acceptance(scores: Scores, places: Places, config: LossConfig) -> WindowAcceptance:
    """Return the acceptance that scores stand for.

    Args:
        scores: With overlap and the target's likeliest tokens filled in.
        places: Of the batch.
        config: Gives the window.
    """

    def over_windows(chances: Tensor) -> Tensor:
        reached = reach(torch.where(places.masks, chances.double(), 0.0), config.gamma)
        return torch.where(places.windows, reached, 0.0).sum((1, 2))

    return WindowAcceptance(over_windows(scores.is_target), over_windows(scores.overlap.detach()))
