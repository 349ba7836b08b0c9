"""GRPO on acceptance length: windows are rewarded for what greedy verification would accept.

Per window the reward is how many more leading drafts of the current draft are the target's
likeliest tokens than drafts of a frozen reference are; the response itself may have been sampled.
Windows are compared in groups of neighbours; groups of a response do not overlap. Everything here
works on log-probabilities of drafts, ``[J, B, N]`` by pass and predicted position, so it needs no
logits.

Source: EAL (arXiv 2609.24150), GRPO phase. Number of groups, windows per group (stride 1), clips
and the biased deviation are ours: the paper does not give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig
from specdec_core.training.windows import along_windows, expected_length

_SMALL_DEVIATION = 1e-6


def count_groups(valid: Tensor, config: LossConfig) -> int:
    """Return how many groups `draw_anchors` draws.

    Args:
        valid: ``[B, N]`` bool: positions that start a window.
        config: Gives the window, windows per group and groups per response.
    """
    return sum(num_groups for _, _, _, num_groups in _responses(valid, config))


def draw_anchors(
    valid: Tensor, config: LossConfig, generators: Sequence[np.random.Generator]
) -> Tensor:
    """Return first windows of groups, drawn uniformly among placements without overlap.

    A response too short for all groups has fewer, down to none.

    Args:
        valid: ``[B, N]`` bool: positions that start a window.
        config: Gives the window, windows per group and groups per response.
        generators: One of each sequence, so that its draws do not depend on those beside it.

    Returns:
        ``[G, 2]`` int64: sequence and position.
    """
    span = config.group_span
    anchors: list[tuple[int, int]] = []
    for sequence, start, num_positions, num_groups in _responses(valid, config):
        if not num_groups:
            continue
        free = num_positions - num_groups * (span - 1)
        drawn = np.sort(generators[sequence].choice(free, size=num_groups, replace=False))
        anchors += [(sequence, start + int(at) + i * (span - 1)) for i, at in enumerate(drawn)]
    return torch.tensor(anchors, dtype=torch.int64, device=valid.device).reshape(-1, 2)


def group_rewards(
    matches: Tensor, reference_matches: Tensor, anchors: Tensor, config: LossConfig
) -> Tensor:
    """Return how many more drafts are accepted than of the reference, window by window.

    Args:
        matches: ``[J, B, N]`` bool: the draft's likeliest token is the target's.
        reference_matches: The same of the reference.
        anchors: As `draw_anchors` returns them.
        config: Gives the window and windows per group.

    Returns:
        ``[G, m]`` float64, whole numbers in [-gamma, gamma].
    """
    lengths = [
        expected_length(found.to(torch.float64), config.gamma)
        for found in (matches, reference_matches)
    ]
    return _of_groups(lengths[0] - lengths[1], anchors, config)


def advantages(rewards: Tensor, clip: float) -> Tensor:
    """Return rewards in standard deviations of their group (biased), clipped; ``[G, m]``.

    A group whose rewards are equal has advantage 0 everywhere.

    Args:
        rewards: ``[G, m]``.
        clip: Largest absolute value.
    """
    mean = rewards.mean(-1, keepdim=True)
    # Written out, as torch's own warns where there are no groups.
    deviation = (rewards - mean).square().mean(-1, keepdim=True).sqrt()
    return ((rewards - mean) / (deviation + _SMALL_DEVIATION)).clamp(-clip, clip)


def grpo_loss(
    chosen: Tensor, reference_chosen: Tensor, rewards: Tensor, anchors: Tensor, config: LossConfig
) -> Tensor:
    """Return the clipped objective summed over groups, negated; divide by the number of groups.

    Args:
        chosen: ``[J, B, N]``: log-probability of the draft's likeliest token; has the gradient.
        reference_chosen: The reference's log-probability of the same token.
        rewards: As `group_rewards` returns them.
        anchors: As `draw_anchors` returns them.
        config: Gives window, windows per group and clips.
    """
    gain = advantages(rewards, config.grpo_clip_advantage).to(chosen.dtype)
    mean_log_ratio = along_windows(chosen - reference_chosen, config.gamma).mean(0)
    ratio = _of_groups(mean_log_ratio, anchors, config).exp()
    low, high = 1.0 - config.grpo_clip_ratio, 1.0 + config.grpo_clip_ratio
    objective = torch.minimum(ratio * gain, ratio.clamp(low, high) * gain)
    return -objective.mean(-1).sum()


def _of_groups(values: Tensor, anchors: Tensor, config: LossConfig) -> Tensor:
    """Return values ``[B, N]`` of every window of every group, ``[G, m]``."""
    steps = torch.arange(config.grpo_windows, device=anchors.device)
    return values[anchors[:, :1], anchors[:, 1:] + steps]


def _responses(valid: Tensor, config: LossConfig) -> Iterator[tuple[int, int, int, int]]:
    """Yield sequence, first position, predicted positions and groups of every response.

    A response is a run of windows; its positions are those of the windows together.
    """
    edges = np.diff(valid.cpu().numpy().astype(np.int8), prepend=0, append=0, axis=1)
    for sequence, row in enumerate(edges):
        starts, ends = np.flatnonzero(row == 1), np.flatnonzero(row == -1)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            num_positions = end - start + config.gamma - 1
            num_groups = min(config.grpo_groups, num_positions // config.group_span)
            yield sequence, start, num_positions, num_groups
