"""Expected acceptance of a draft on held-out responses, under teacher forcing.

Source: EAL (arXiv 2609.24150), expected acceptance length, for greedy drafts and for drawn ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from specdec_core.errors import DataError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import TrainableDraft
from specdec_core.training.finite import are_finite, refuse_unless_finite
from specdec_core.training.objective import Objective, add, autocast
from specdec_core.training.outcome import Acceptance
from specdec_core.training.sharding import equally_many
from specdec_core.training.state import Reference
from specdec_core.training.workers import Workers


@dataclass(frozen=True, slots=True)
class Validation:
    """What a draft reaches on held-out responses, over all workers.

    Attributes:
        loss: Weighted sum of the terms.
        terms: Each loss, and each auxiliary one of the draft, before its weight.
        greedy: Acceptance of the likeliest token.
        sampling: Acceptance of a drawn token at the loss's temperature.
        num_sequences: Validated.
        num_tokens: Response tokens of these.
    """

    loss: float
    terms: Mapping[str, float]
    greedy: Acceptance
    sampling: Acceptance
    num_sequences: int
    num_tokens: int


@torch.no_grad()
def validate(
    draft: TrainableDraft,
    objective: Objective,
    batches: Iterable[TrainingBatch],
    workers: Workers,
    *,
    reference: Reference | None = None,
    is_autocast: bool = False,
) -> Validation:
    """Return loss and expected acceptance, summed over batches and workers before dividing.

    Args:
        draft: What is validated.
        objective: Gives losses, window and temperature.
        batches: This worker's; gone through once, none is kept.
        workers: All of them call this together.
        reference: Of losses that need one; None for others.
        is_autocast: Whether products are taken in bfloat16, as in training.

    Raises:
        DataError: if states of any worker's sequences are damaged.
        EvaluationFailedError: if the loss is not finite; names samples.
    """
    faults: list[DataError] = []
    sums = {"sequences": 0.0, "tokens": 0.0}
    counts: dict[str, float] = {}
    suspects: list[str] = []
    for batch in equally_many(_useful(batches, sums, faults), draft, workers):
        earlier = None
        if objective.needs_reference:
            assert reference is not None  # there is one in the phase that needs it
            with autocast(batch, is_autocast):
                earlier = reference.forward(batch)
        with autocast(batch, is_autocast):
            output = draft.forward(batch)
        if batch.sample_ids:
            more_sums, more_counts = objective.measure(output, batch, earlier)
            add(sums, more_sums)
            add(counts, more_counts)
            suspects += () if are_finite(more_sums) else batch.sample_ids
    workers.together(lambda: _raise_first(faults))
    sums, counts = workers.sums(sums), workers.sums(counts)
    loss, terms = objective.means(sums, counts)
    refuse_unless_finite("loss of a validation", loss, suspects, workers)
    return Validation(
        loss=loss,
        terms=terms,
        greedy=_acceptance(sums, counts, "greedy", objective),
        sampling=_acceptance(sums, counts, "sampling", objective),
        num_sequences=int(sums["sequences"]),
        num_tokens=int(sums["tokens"]),
    )


def _useful(
    batches: Iterable[TrainingBatch], totals: dict[str, float], faults: list[DataError]
) -> Iterator[TrainingBatch]:
    """Yield batches that have a response, and count the sequences and response tokens of all.

    One that cannot be read is the last, and a fault: other workers may be waiting for this one.
    """
    try:
        for batch in batches:
            num_tokens = int(batch.response_mask.sum())
            add(totals, {"sequences": float(len(batch.sample_ids)), "tokens": float(num_tokens)})
            if num_tokens:
                yield batch
    except DataError as error:
        faults.append(error)


def _raise_first(faults: Sequence[DataError]) -> None:
    if faults:
        raise faults[0]


def _acceptance(
    sums: Mapping[str, float], counts: Mapping[str, float], name: str, objective: Objective
) -> Acceptance:
    depths = range(objective.config.gamma)
    return Acceptance(
        num_windows=int(counts.get("windows", 0.0)),
        reached=tuple(sums.get(f"{name}/{depth}", 0.0) for depth in depths),
    )
