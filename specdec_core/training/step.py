"""One update of a draft over all micro-batches and workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import AdamW

from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, NoisyDraft, TrainableDraft
from specdec_core.training.finite import are_finite, refuse_unless_finite
from specdec_core.training.objective import Objective, add, autocast
from specdec_core.training.optimizer import clip_gradients, set_learning_rate
from specdec_core.training.plan import BatchSource, TrainingPlan
from specdec_core.training.sharding import add_up_gradients, equally_many
from specdec_core.training.state import Reference
from specdec_core.training.workers import Workers


@dataclass(frozen=True, slots=True)
class StepContext:
    """What every step of a training uses."""

    draft: TrainableDraft
    parameters: Mapping[str, nn.Parameter]
    optimizer: AdamW
    workers: Workers
    plan: TrainingPlan
    source: BatchSource


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did, over all workers.

    Attributes:
        loss: Weighted sum of the terms; 0 where there was nothing to learn.
        terms: Each loss, and each auxiliary one of the draft, before its weight.
        gradient_norm: Before clipping.
        num_tokens: Of the step's sequences, padding not counted.
        num_skipped: Micro-batches with nothing to learn.
    """

    loss: float
    terms: Mapping[str, float]
    gradient_norm: float
    num_tokens: int
    num_skipped: int


def do_step(
    context: StepContext, objective: Objective, reference: Reference | None, step: int
) -> StepResult:
    """Do update `step`, 0-based; all workers call it together.

    The denominators of all micro-batches are added up first, so that every loss is its share of
    the mean over the whole step and gradients only have to be added. That happens in one exchange
    behind the last backward pass, not by hooks: workers may have different numbers of
    micro-batches. Where nothing can be learned the weights stay as they are.

    Raises:
        DataError: if states of any worker's sequences are damaged.
        EvaluationFailedError: if a loss or the gradient is not finite; the weights are as before.
    """
    workers, plan = context.workers, context.plan
    batches = workers.together(
        lambda: context.source.micro_batches(
            plan.epoch(step),
            step % plan.steps_per_epoch,
            rank=workers.rank,
            num_workers=workers.num,
        )
    )
    useful = [batch for batch in batches if bool(batch.response_mask.any())]
    counts = workers.sums(objective.count(context.draft, useful))
    context.optimizer.zero_grad(set_to_none=False)
    sums: dict[str, float] = {}
    suspects: list[str] = []
    with _noise(context.draft, step):
        for batch in equally_many(useful, context.draft, workers):
            found = _backward(context, objective, batch, counts, reference, step)
            add(sums, found)
            if not are_finite(found):
                suspects += batch.sample_ids
    totals = workers.sums(sums | _totals(batches, useful))
    num_tokens, num_skipped = int(totals.pop("tokens")), int(totals.pop("skipped"))
    loss, terms = objective.means(totals, counts)
    refuse_unless_finite(f"loss of step {step + 1}", loss, suspects, workers)
    add_up_gradients(context.parameters, workers)
    norm = clip_gradients(context.parameters, plan.clip_norm, workers)
    names = [name for batch in useful for name in batch.sample_ids]
    refuse_unless_finite(f"norm of the gradient of step {step + 1}", norm, names, workers)
    if objective.can_learn(counts):
        set_learning_rate(context.optimizer, plan.rate(step))
        context.optimizer.step()
    return StepResult(loss, terms, norm, num_tokens, num_skipped)


def _noise(draft: TrainableDraft, step: int) -> AbstractContextManager[None]:
    return draft.noisy(step) if isinstance(draft, NoisyDraft) else nullcontext()


def _backward(
    context: StepContext,
    objective: Objective,
    batch: TrainingBatch,
    counts: Mapping[str, float],
    reference: Reference | None,
    step: int,
) -> dict[str, float]:
    """Add the gradient of one micro-batch; return its sums of the losses by name."""
    earlier = None
    if objective.needs_reference:
        assert reference is not None  # the trainer keeps one where the phase begins
        with autocast(batch, context.plan.is_autocast):
            earlier = reference.forward(batch)
    with autocast(batch, context.plan.is_autocast):
        output = context.draft.forward(batch)
    if not bool(batch.response_mask.any()):
        _take_part(output)
        return {}
    seed = (context.plan.seed, step)
    loss, sums = objective.loss(output, batch, counts, reference=earlier, seed=seed)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return sums


def _take_part(output: DraftOutput) -> None:
    """Pass a gradient of zero back, as other workers exchange shards in their backward passes."""
    total = torch.stack([one.hidden.sum() for one in output.passes]).sum() * 0.0
    total.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped


def _totals(batches: Sequence[TrainingBatch], useful: Sequence[TrainingBatch]) -> dict[str, float]:
    return {
        "tokens": float(sum(int(batch.lengths.sum()) for batch in batches)),
        "skipped": float(len(batches) - len(useful)),
    }
