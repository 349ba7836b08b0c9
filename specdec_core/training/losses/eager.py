"""The readable form of all losses, on full logits: what the memory-bounded form is tested against.

Needs several tensors of ``[B, N, V]`` per pass. Probabilities are float32 (float64 for float64
logits) whatever the logits are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specdec_core.config.losses import LossConfig
from specdec_core.training.alignment import row_of
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.common import (
    LOWEST_LOGIT,
    LossResult,
    check_target,
    common_size,
    compute_dtype,
    prepare,
)
from specdec_core.training.losses.counts import Counts, PassRows, Places
from specdec_core.training.losses.terms import ScoreName, Scores, scores_wanted


@dataclass(frozen=True, slots=True)
class PassLogits:
    """Logits of one draft depth.

    Attributes:
        logits: ``[B, N, V_d]`` by row.
        rows: Which tokens they predict.
    """

    logits: Tensor
    rows: PassRows


def eager_loss(
    config: LossConfig,
    batch: TrainingBatch,
    passes: Sequence[DraftPass],
    target_head: Head,
    *,
    reference: Sequence[DraftPass] | None = None,
    denominators: Counts | None = None,
    generators: Sequence[np.random.Generator] | None = None,
    document_ids: Tensor | None = None,
    measures_acceptance: bool = False,
) -> LossResult:
    """Return the loss of a draft's passes; arguments as for `bounded_loss`.

    Raises:
        ConfigError: if batch, passes and heads do not fit together.
    """
    check_target(batch, target_head)
    logits = [PassLogits(head_logits(p.hidden, p.head), PassRows.of(p)) for p in passes]
    with torch.no_grad():
        target = head_logits(batch.hidden, target_head)
        before = [head_logits(p.hidden, p.head) for p in reference] if reference else None
    return loss_of_logits(
        config,
        batch,
        logits,
        target,
        reference_logits=before,
        denominators=denominators,
        generators=generators,
        document_ids=document_ids,
        measures_acceptance=measures_acceptance,
    )


def head_logits(hidden: Tensor, head: Head) -> Tensor:
    """Return logits ``[B, N, V]`` of hidden states ``[B, N, h]``, in float32 or float64."""
    dtype = compute_dtype(hidden.dtype)
    bias = head.bias.to(dtype) if head.bias is not None else None
    return functional.linear(hidden.to(dtype), head.weight.to(dtype), bias)


def loss_of_logits(
    config: LossConfig,
    batch: TrainingBatch,
    passes: Sequence[PassLogits],
    target_logits: Tensor,
    *,
    reference_logits: Sequence[Tensor] | None = None,
    denominators: Counts | None = None,
    generators: Sequence[np.random.Generator] | None = None,
    document_ids: Tensor | None = None,
    measures_acceptance: bool = False,
) -> LossResult:
    """Return the loss of full logits.

    Args:
        config: What to minimise.
        batch: Tokens and response mask; its hidden states are not read.
        passes: Draft logits by draft depth, with gradient.
        target_logits: ``[B, N, V]`` by row, row t predicts token t + 1.
        reference_logits: Of a frozen draft, pass by pass; grpo needs them.
        denominators: Counts of the whole step; None for those of this batch.
        generators: One per sequence; they draw grpo's groups.
        document_ids: ``[B, N]`` int where sequences are packed.
        measures_acceptance: Whether expected acceptance is counted too.

    Raises:
        ConfigError: if grpo lacks a reference or generators, or vocabularies do not fit.
    """
    prepared = prepare(
        config,
        batch,
        [one.rows for one in passes],
        has_reference=reference_logits is not None,
        denominators=denominators,
        generators=generators,
        document_ids=document_ids,
    )
    places = prepared.scene.places
    found = [
        _score_pass(
            one,
            target_logits.detach(),
            reference_logits[depth].detach() if reference_logits is not None else None,
            _pass_places(places, depth),
            config.temperature,
            scores_wanted(config, measures_acceptance=measures_acceptance),
            finds_matches=measures_acceptance or "grpo" in config.names,
        )
        for depth, one in enumerate(passes)
    ]
    names = Scores.__dataclass_fields__
    scores = Scores(**{name: torch.cat([getattr(s, name) for s in found]) for name in names})
    return prepared.finish(scores, measures_acceptance=measures_acceptance)


def _pass_places(places: Places, depth: int) -> Places:
    only = slice(depth, depth + 1)
    return replace(places, masks=places.masks[only], labels=places.labels[only])


def _score_pass(
    one: PassLogits,
    target_logits: Tensor,
    reference_logits: Tensor | None,
    places: Places,
    temperature: float,
    wanted: frozenset[ScoreName],
    *,
    finds_matches: bool,
) -> Scores:
    """Return scores of one pass, ``[1, B, N]`` each; only its masked-in rows are looked at."""
    mask, rows = places.masks[0], one.rows
    size = common_size(one.logits.shape[-1], rows.target_ids, target_logits.shape[-1])
    z = _rows(one.logits, rows.shift, mask)[:, :size]
    y = _rows(target_logits, 1, mask)
    allowed = y[:, :size] if rows.target_ids is None else y[:, rows.target_ids]
    labels = places.labels[0][mask]
    values = _values(z, y, allowed, labels, rows.target_ids, temperature, wanted)
    if finds_matches:
        values["is_target"] = _are_target(z, y, allowed, rows.target_ids)
    if reference_logits is not None:
        r = _rows(reference_logits, rows.shift, mask)[:, :size]
        values["reference_chosen"] = _at(r.log_softmax(-1), z.argmax(-1))
        values["reference_is_target"] = _are_target(r, y, allowed, rows.target_ids)
    blank = Scores.zeros(places, z.dtype)
    where = (torch.zeros_like(labels), *mask.nonzero(as_tuple=True))
    filled = {name: getattr(blank, name).index_put(where, v) for name, v in values.items()}
    return replace(blank, **filled)


def _values(
    z: Tensor,
    y: Tensor,
    allowed: Tensor,
    labels: Tensor,
    target_ids: Tensor | None,
    temperature: float,
    wanted: frozenset[ScoreName],
) -> dict[str, Tensor]:
    """Return the wanted scores of rows of logits, ``[n]`` each.

    Args:
        z: ``[n, V_d]``: of the draft.
        y: ``[n, V]``: of the target.
        allowed: ``[n, V_d]``: of the target for what the draft can say.
        labels: ``[n]``: tokens as draft ids; -1 for those it cannot say.
        target_ids: The target's id of each draft id; None where they are equal.
        temperature: Of the overlap.
        wanted: Which scores.
    """
    values: dict[str, Tensor] = {}
    if wanted - {"overlap"}:
        log_q = z.log_softmax(-1)
    if "surprise" in wanted:
        values["surprise"] = -_at(log_q, labels.clamp(min=0)) * (labels >= 0)
    if "chosen" in wanted:
        values["chosen"] = _at(log_q, z.argmax(-1))
    if wanted & {"kl", "reverse_kl"}:
        log_p = allowed.log_softmax(-1)
    if "kl" in wanted:
        values["kl"] = (log_p.exp() * (log_p - log_q)).sum(-1)
    if "reverse_kl" in wanted:
        values["reverse_kl"] = (log_q.exp() * (log_q - log_p)).sum(-1)
    if "overlap" in wanted:
        values["overlap"] = _overlap(z, y, target_ids, temperature)
    return values


def _are_target(z: Tensor, y: Tensor, allowed: Tensor, target_ids: Tensor | None) -> Tensor:
    """Return where the likeliest token of a draft is the target's; arguments as for `_values`."""
    if target_ids is None:
        return z.argmax(-1) == allowed.argmax(-1)
    return target_ids[z.argmax(-1)] == y.argmax(-1)


def _at(values: Tensor, columns: Tensor) -> Tensor:
    return values.gather(1, columns[:, None])[:, 0]


def _rows(logits: Tensor, shift: int, mask: Tensor) -> Tensor:
    """Return the logits ``[n, V]`` that predict the masked-in positions."""
    at = mask.flatten().nonzero()[:, 0]
    found = logits.flatten(0, 1)[row_of(at, shift)].to(compute_dtype(logits.dtype))
    return found.clamp(min=LOWEST_LOGIT) if bool((found < LOWEST_LOGIT).any()) else found


def _overlap(z: Tensor, y: Tensor, target_ids: Tensor | None, temperature: float) -> Tensor:
    """Sum of the smaller probability; where both are equal it has no gradient."""
    q = (z / temperature).softmax(-1)
    if target_ids is None:
        p = (y[:, : z.shape[1]] / temperature).softmax(-1)
    else:
        p = (y / temperature).softmax(-1)[:, target_ids]
    return torch.where(q < p, q, p).sum(-1)
