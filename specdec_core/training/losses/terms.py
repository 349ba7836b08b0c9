"""Every loss as a function of a few numbers per predicted token, and their weighted sum.

Logits are reduced to `Scores` first. Losses are written once, on scores: the eager form lets
autograd go on into the logits, the memory-bounded form takes the gradient for the scores here and
turns it into that for hidden states by closed forms. For windowed losses that gradient is the
weight of a position in an equal sum over positions, in the shape of the scores. A new loss is a
function and one line of `TERMS`.

Source: EAL (arXiv 2609.24150): eal, wtv, window-tv beside kl, and their gradient as a reweighting.
LK losses: lk-alpha, lk-lambda.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig, LossName
from specdec_core.training.grpo import group_rewards, grpo_loss
from specdec_core.training.losses.counts import Counts, Places
from specdec_core.training.windows import along_windows, expected_length

ScoreName = Literal["surprise", "kl", "reverse_kl", "overlap", "chosen"]
Unit = Literal["positions", "labels", "windows", "groups"]


@dataclass(frozen=True, slots=True)
class Scores:
    """What losses know of predictions, each ``[J, B, N]`` by pass and predicted position.

    p is the target's distribution, q the draft's. Values are zero (False) where nothing is
    predicted, and where no loss asks for them.

    Attributes:
        surprise: ``-log q(label)``; zero where the draft cannot say the label.
        kl: Forward divergence, with p renormalised on the draft's vocabulary.
        reverse_kl: Reverse divergence, the same way.
        overlap: ``sum of min(p, q)`` at the loss's temperature: chance that a drawn draft is
            accepted. p is not renormalised: what the draft cannot say is rejected.
        chosen: Log-probability of the draft's likeliest token.
        reference_chosen: The reference's log-probability of the same token.
        is_target: Bool: the draft's likeliest token is the target's.
        reference_is_target: Bool: the reference's likeliest token is the target's.
    """

    surprise: Tensor
    kl: Tensor
    reverse_kl: Tensor
    overlap: Tensor
    chosen: Tensor
    reference_chosen: Tensor
    is_target: Tensor
    reference_is_target: Tensor

    @classmethod
    def zeros(cls, places: Places, dtype: torch.dtype) -> Scores:
        """Return scores of nothing, to be filled in."""
        masks = places.masks
        return cls(
            **{
                field.name: torch.zeros_like(
                    masks, dtype=torch.bool if "is_" in field.name else dtype
                )
                for field in fields(cls)
            }
        )


@dataclass(frozen=True, slots=True)
class Scene:
    """What a loss reads beside the scores.

    Attributes:
        config: Windows, temperature, clips.
        places: Where there is something to learn.
        anchors: ``[G, 2]``: first windows of groups; None without grpo.
    """

    config: LossConfig
    places: Places
    anchors: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """One loss.

    Attributes:
        function: Returns the sum over its units: ``[J]`` by pass if units are positions or labels,
            else ``[]``.
        scores: Those it reads.
        unit: What it is a mean over.
    """

    function: Callable[[Scores, Scene], Tensor]
    scores: frozenset[ScoreName]
    unit: Unit


def total_loss(
    scores: Scores, scene: Scene, denominators: Counts
) -> tuple[Tensor, dict[LossName, Tensor]]:
    """Return the weighted sum of all terms over `denominators`, and each term's own sum.

    Args:
        scores: Of the batch; those with gradient decide what the gradient goes into.
        scene: What is minimised, and where.
        denominators: Of the whole step.
    """
    total = scores.surprise.new_zeros(())
    sums: dict[LossName, Tensor] = {}
    for term in scene.config.terms:
        found = TERMS[term.name].function(scores, scene)
        total = total + term.weight * term_mean(term.name, found, denominators, scene.config)
        sums[term.name] = found.detach()
    return total, sums


def term_mean(name: LossName, found: Tensor, denominators: Counts, config: LossConfig) -> Tensor:
    """Return the mean of one loss of its summed value and the number of its units.

    Means of passes are averaged with weights ``depth_decay ** j``.

    Args:
        name: Of the loss.
        found: Its sum, ``[J]`` or ``[]``.
        denominators: Of all that was summed.
        config: Gives the weights of passes.
    """
    units: Tensor = getattr(denominators, TERMS[name].unit).clamp(min=1.0).to(found)
    means = found / units
    if not means.dim():
        return means
    weights = config.depth_decay ** torch.arange(len(means), dtype=means.dtype, device=means.device)
    return (means * weights).sum() / weights.sum()


def scores_read(config: LossConfig) -> frozenset[ScoreName]:
    """Return the scores that the configured losses read."""
    return frozenset().union(*(TERMS[name].scores for name in config.names))


def scores_wanted(config: LossConfig, *, measures_acceptance: bool) -> frozenset[ScoreName]:
    """Return the scores that losses, or counts of acceptance beside them, read."""
    overlap: frozenset[ScoreName] = frozenset({"overlap"})
    return scores_read(config) | overlap if measures_acceptance else scores_read(config)


def rows_ahead(config: LossConfig) -> int | None:
    """Return how many positions ahead the gradient at a position depends on; None for all."""
    names = config.names
    if "grpo" in names or ("lk-lambda" in names and config.lk_scope == "depth"):
        return None
    is_windowed = any(TERMS[name].unit == "windows" for name in names)
    return config.gamma - 1 if is_windowed else 0


def label_acceptance(scores: Scores, places: Places) -> Tensor:
    """Return q(label), zero where the draft cannot say the label; ``[J, B, N]``."""
    return torch.where(places.has_label, torch.exp(-scores.surprise), 0.0)


def _sum(values: Tensor, masks: Tensor) -> Tensor:
    found: Tensor = torch.where(masks, values, 0.0).sum((1, 2))
    return found


def _over_windows(values: Tensor, scene: Scene) -> Tensor:
    found: Tensor = torch.where(scene.places.windows, values, 0.0).sum()
    return found


def _ce(scores: Scores, scene: Scene) -> Tensor:
    return _sum(scores.surprise, scene.places.has_label)


def _kl(scores: Scores, scene: Scene) -> Tensor:
    return _sum(scores.kl, scene.places.masks)


def _reverse_kl(scores: Scores, scene: Scene) -> Tensor:
    return _sum(scores.reverse_kl, scene.places.masks)


def _tv(scores: Scores, scene: Scene) -> Tensor:
    return _sum(1.0 - scores.overlap, scene.places.masks)


def _window_tv(scores: Scores, scene: Scene) -> Tensor:
    return _over_windows(along_windows(1.0 - scores.overlap, scene.config.gamma).mean(0), scene)


def _lk_alpha(scores: Scores, scene: Scene) -> Tensor:
    # Without any overlap there is no direction: the loss is that of the least number there is.
    least = torch.finfo(scores.overlap.dtype).tiny
    return _sum(-scores.overlap.clamp(min=least).log(), scene.places.masks)


def _lk_lambda(scores: Scores, scene: Scene) -> Tensor:
    masks = scene.places.masks
    overlap = scores.overlap.detach()
    if scene.config.lk_scope == "depth":
        # Sequences are never split, batches are: the share must not depend on the others in one.
        units = masks.sum(2, keepdim=True).clamp(min=1)
        overlap = torch.where(masks, overlap, 0.0).sum(2, keepdim=True) / units
    share = torch.exp(-scene.config.lk_eta * overlap)
    return _sum(share * scores.kl + (1.0 - share) * (1.0 - scores.overlap), masks)


def _eal(scores: Scores, scene: Scene) -> Tensor:
    acceptance = label_acceptance(scores, scene.places)
    return -_over_windows(expected_length(acceptance, scene.config.gamma), scene)


def _wtv(scores: Scores, scene: Scene) -> Tensor:
    return -_over_windows(expected_length(scores.overlap, scene.config.gamma), scene)


def _grpo(scores: Scores, scene: Scene) -> Tensor:
    assert scene.anchors is not None, "anchors are drawn where grpo is configured"
    matches = (scores.is_target, scores.reference_is_target)
    rewards = group_rewards(*matches, scene.anchors, scene.config)
    return grpo_loss(scores.chosen, scores.reference_chosen, rewards, scene.anchors, scene.config)


TERMS: Mapping[LossName, Term] = {
    "ce": Term(_ce, frozenset({"surprise"}), "labels"),
    "kl": Term(_kl, frozenset({"kl"}), "positions"),
    "reverse-kl": Term(_reverse_kl, frozenset({"reverse_kl"}), "positions"),
    "tv": Term(_tv, frozenset({"overlap"}), "positions"),
    "window-tv": Term(_window_tv, frozenset({"overlap"}), "windows"),
    "lk-alpha": Term(_lk_alpha, frozenset({"overlap"}), "positions"),
    "lk-lambda": Term(_lk_lambda, frozenset({"kl", "overlap"}), "positions"),
    "eal": Term(_eal, frozenset({"surprise"}), "windows"),
    "wtv": Term(_wtv, frozenset({"overlap"}), "windows"),
    "grpo": Term(_grpo, frozenset({"chosen"}), "groups"),
}
