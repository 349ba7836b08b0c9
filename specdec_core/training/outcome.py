"""What a training reports while it runs and when it is done; imports without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from specdec_core.config.base import Record
from specdec_core.config.training import Criterion


class Acceptance(Record):
    """Expected acceptance under teacher forcing, pooled over windows of gamma tokens.

    Counts are kept, not ratios, so that workers and batches are summed before dividing.

    Source: EAL (arXiv 2609.24150), window acceptance: the chance of reaching a depth is the
    product of the acceptances before it.
    """

    num_windows: int = Field(ge=0, description="windows of gamma response tokens")
    reached: tuple[float, ...] = Field(
        description="by depth: sum over windows of the chance that the token there is accepted"
    )

    @property
    def accepted_tokens(self) -> float:
        """Expected draft tokens kept in a step, 0 to gamma, the bonus token not counted."""
        return sum(self.reached) / self.num_windows if self.num_windows else 0.0

    @property
    def length(self) -> float:
        """Expected acceptance length: accepted tokens and the bonus token, 1 to gamma + 1."""
        return 1.0 + self.accepted_tokens

    @property
    def by_depth(self) -> tuple[float, ...]:
        """Chance that a depth is accepted given that the one before was; 0 where none was."""
        before = (float(self.num_windows), *self.reached[:-1])
        pairs = zip(self.reached, before, strict=True)
        return tuple(now / past if past > 0.0 else 0.0 for now, past in pairs)


class StepMetrics(Record):
    """One step of the optimizer."""

    kind: Literal["step"] = "step"
    step: int = Field(ge=1, description="steps done, this one included")
    num_steps: int = Field(ge=1, description="steps of the whole training")
    epoch: int = Field(ge=0, description="0-based")
    phase: Literal[1, 2] = 1
    loss: float
    terms: Mapping[str, float] = Field(description="losses by name, before their weights")
    learning_rate: float
    gradient_norm: float = Field(description="before clipping")
    num_tokens: int = Field(ge=0, description="tokens of this step's sequences, all workers")
    num_skipped: int = Field(ge=0, description="micro-batches with nothing to learn, so far")
    seconds: float = Field(ge=0.0)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of this step per second, padding not counted, over all workers."""
        return self.num_tokens / self.seconds if self.seconds > 0.0 else 0.0


class ValidationMetrics(Record):
    """One pass over the held-out responses."""

    kind: Literal["validation"] = "validation"
    step: int = Field(ge=0, description="steps done before it; 0 is the untrained draft")
    epoch: int = Field(ge=0, description="0-based")
    phase: Literal[1, 2] = 1
    loss: float
    terms: Mapping[str, float]
    greedy: Acceptance = Field(description="a token is accepted where both models rank it first")
    sampling: Acceptance = Field(description="overlap of both distributions at the temperature")
    num_sequences: int
    num_tokens: int = Field(description="response tokens")
    seconds: float
    is_best: bool = Field(False, description="best so far by the criterion of the training")

    def acceptance(self, criterion: Criterion) -> Acceptance:
        """Return the acceptance that `criterion` names."""
        return self.greedy if criterion == "greedy" else self.sampling


TrainingEvent = Annotated[StepMetrics | ValidationMetrics, Field(discriminator="kind")]
_EVENT: TypeAdapter[StepMetrics | ValidationMetrics] = TypeAdapter(TrainingEvent)


def parse_event(line: str | bytes) -> StepMetrics | ValidationMetrics:
    """Return the event written as one line of a metrics file."""
    return _EVENT.validate_json(line)


class MemoryEstimate(Record):
    """What a training will hold at its peak on one worker, bytes."""

    parameters: int = Field(description="weights of the draft, those that stay frozen included")
    gradients: int
    optimizer: int
    reference: int = Field(description="frozen copy of the second phase, 0 without one")
    target_head: int
    activations: int = Field(description="kept for the backward pass of one micro-batch")
    loss: int = Field(description="logits and probabilities of one chunk of positions")
    batch: int = Field(description="tokens and hidden states of the target, one micro-batch")

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(self.model_dump().values())

    def describe(self) -> str:
        """Return total and parts in MiB, for messages."""
        parts = ", ".join(f"{name} {size / 2**20:.0f}" for name, size in self.model_dump().items())
        return f"{self.total / 2**20:.0f} MiB ({parts})"


class TrainingOutcome(Record):
    """What a finished training made, and from what."""

    num_steps: int
    num_epochs: int
    criterion: Criterion = Field(description="acceptance that chose the best checkpoint")
    start: ValidationMetrics = Field(description="the draft before the first step")
    best: ValidationMetrics
    last: ValidationMetrics
    second_start: ValidationMetrics | None = Field(
        None, description="end of the first phase, where there is a second"
    )
    losses: tuple[tuple[int, float], ...] = Field(
        description="training loss, at most 200 points: last step of each and the mean up to it"
    )
    validations: tuple[ValidationMetrics, ...]
    num_tokens: int = Field(description="tokens of all training sequences passed, padding excluded")
    num_skipped: int = Field(description="micro-batches with nothing to learn")
    seconds: float = Field(description="of steps, validations and checkpoints excluded")
    tokens_per_s: float = Field(description="training tokens / seconds, over all workers")
    peak_bytes: int = Field(description="most memory of one worker: resident set, or of its GPU")
    estimate: MemoryEstimate
    draft_folder: Path = Field(description="best draft in the layout that decoding loads")
    data_hash: str
    template_hash: str
    lineage: Mapping[str, str] = Field(
        description="identities by name: target, draft it started from, configuration, code"
    )
