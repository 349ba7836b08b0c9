"""What both forms of the loss check, find and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig, LossName
from specdec_core.errors import ConfigError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import Head
from specdec_core.training.grpo import draw_anchors
from specdec_core.training.losses.acceptance import WindowAcceptance, window_acceptance
from specdec_core.training.losses.counts import Counts, PassRows, count_places, find_places
from specdec_core.training.losses.terms import Scene, Scores, term_mean, total_loss

# What a logit of minus infinity is read as: its probability is 0, and no product with it is NaN.
LOWEST_LOGIT = -1e4


@dataclass(frozen=True, slots=True)
class LossResult:
    """One batch's share of the loss, and everything it is made of.

    Attributes:
        loss: ``[]``, with gradient: weighted sum of all terms over the denominators given.
        sums: Of each term over its units, without weight: ``[J]`` by pass or ``[]``. Add them up
            over batches and workers before dividing, see `mean_loss`.
        counts: Units of this batch alone.
        acceptance: Expected acceptance of this batch; None unless asked for.
    """

    loss: Tensor
    sums: Mapping[LossName, Tensor]
    counts: Counts
    acceptance: WindowAcceptance | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checked batch: where it has something to learn, its counts, and what to divide by."""

    scene: Scene
    counts: Counts
    denominators: Counts

    def finish(self, scores: Scores, *, measures_acceptance: bool) -> LossResult:
        """Return the result of all scores; its loss has the gradient that the scores have."""
        loss, sums = total_loss(scores, self.scene, self.denominators)
        config, places = self.scene.config, self.scene.places
        acceptance = window_acceptance(scores, places, config) if measures_acceptance else None
        return LossResult(loss, sums, self.counts, acceptance)


def prepare(
    config: LossConfig,
    batch: TrainingBatch,
    rows: Sequence[PassRows],
    *,
    has_reference: bool,
    denominators: Counts | None,
    generators: Sequence[np.random.Generator] | None,
    document_ids: Tensor | None,
) -> Prepared:
    """Return where a batch has something to learn and what its loss is divided by.

    Raises:
        ConfigError: if grpo lacks a reference or generators, or the denominators are fewer than
            the batch's own.
    """
    places = find_places(config, batch, rows, document_ids)
    counts = count_places(config, places)
    anchors = None
    if "grpo" in config.names:
        if not has_reference or generators is None:
            raise ConfigError(
                "grpo compares with a frozen reference and draws groups: give the reference's "
                "passes and a generator per sequence"
            )
        anchors = draw_anchors(places.windows, config, generators)
    if denominators is None:
        denominators = counts
    elif (denominators.to_tensor() < counts.to_tensor()).any():
        raise ConfigError(
            f"denominators {denominators.to_tensor().tolist()} are fewer than this batch's own "
            f"{counts.to_tensor().tolist()}: add up the counts of every batch of the step"
        )
    return Prepared(Scene(config, places, anchors), counts, denominators)


def mean_loss(
    config: LossConfig, sums: Mapping[LossName, Tensor], counts: Counts
) -> tuple[float, dict[LossName, float]]:
    """Return the weighted loss and every term's mean, of sums over batches and workers.

    Args:
        config: What was minimised.
        sums: As in `LossResult`, added up.
        counts: As in `LossResult`, added up.
    """
    means = {
        term.name: float(term_mean(term.name, sums[term.name].double(), counts, config))
        for term in config.terms
    }
    return sum(term.weight * means[term.name] for term in config.terms), means


def common_size(draft_vocab: int, target_ids: Tensor | None, target_vocab: int) -> int:
    """Return how many columns draft and target share; ids behind them are padding of one.

    Raises:
        ConfigError: if the map of ids does not fit either vocabulary.
    """
    if target_ids is None:
        return min(draft_vocab, target_vocab)
    if len(target_ids) != draft_vocab or int(target_ids.max()) >= target_vocab:
        raise ConfigError(
            f"{len(target_ids)} target ids up to {int(target_ids.max())} for a draft head of "
            f"{draft_vocab} ids and a target of {target_vocab}: give each draft id one target id"
        )
    return draft_vocab


def compute_dtype(given: torch.dtype) -> torch.dtype:
    """Return the type that probabilities are taken in: float64 for float64, else float32."""
    return torch.promote_types(given, torch.float32)


def check_target(batch: TrainingBatch, head: Head) -> None:
    """Check that the target's hidden states fit its head.

    Raises:
        ConfigError: if they do not.
    """
    if batch.hidden.shape[-1] != head.weight.shape[1]:
        raise ConfigError(
            f"hidden states of the target have {batch.hidden.shape[-1]} numbers and its head takes "
            f"{head.weight.shape[1]}: give the head of the model that made the states"
        )
