"""The records of draft training: what was trained, its curve, and the checkpoints it left."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, Field

from db.clock import utc_now
from specdec_core.config.base import Record
from specdec_core.config.training import Criterion, DraftKind

TrainingStatus = Literal["running", "done", "failed", "cancelled"]
"""One that is not done is as its run is; the same command continues it."""

CheckpointState = Literal["candidate", "validated", "rejected"]


class ExpectedAcceptance(Record):
    """Acceptance under teacher forcing on validation responses."""

    length: float = Field(description="expected acceptance length, the bonus token included")
    by_depth: tuple[float, ...] = Field(
        description="chance that a depth is accepted given that the one before was"
    )


class TrainingPoint(Record):
    """One point of a training curve: steps since the last point, or a validation."""

    step: int = Field(ge=0, description="optimizer steps done, both phases counted on")
    phase: int = Field(1, ge=1, le=2)
    seconds: float = Field(0.0, ge=0.0, description="of steps before this point")
    loss: float | None = Field(None, description="mean training loss since the last point")
    learning_rate: float | None = Field(None, description="of the last step")
    gradient_norm: float | None = Field(None, description="of the last step, before clipping")
    tokens_per_s: float | None = Field(None, description="trained since the last point")
    validation_loss: float | None = None
    greedy: ExpectedAcceptance | None = Field(
        None, description="a token is accepted where draft and target rank it first"
    )
    sampling: ExpectedAcceptance | None = Field(
        None, description="overlap of both distributions at the training's temperature"
    )
    is_best: bool = Field(False, description="best validation so far")

    def expected(self, criterion: Criterion) -> ExpectedAcceptance | None:
        """Return the acceptance that `criterion` names, None where nothing was validated."""
        return self.greedy if criterion == "greedy" else self.sampling


class TrainedDraft(Record):
    """What a draft is and where it comes from; shared by trainings and checkpoints."""

    run_id: str = Field(description="the run that trained it")
    target: str = Field(min_length=1, description="model reference")
    target_identity: str = Field(min_length=1)
    draft: str = Field(min_length=1, description="kind:option=value,.. as it was asked for")
    draft_kind: DraftKind
    loss: str = Field(min_length=1, description="such as kl+0.1eal; phases are joined by /")
    seed: int = Field(ge=0)
    data_hash: str = Field(min_length=1, description="hash of the training data's content")
    template_hash: str = Field(description="hash of the chat template of the training data")


class TrainingRecord(TrainedDraft):
    """One training by the hash of everything that decides its result."""

    key: str = Field(min_length=1, description="content key: configuration, data, code")
    status: TrainingStatus
    learning_rate: float = Field(gt=0.0, description="peak")
    config: dict[str, Any] = Field(description="resolved parameters, whole")
    outcome: dict[str, Any] = Field(
        default_factory=dict, description="what the trainer said at its end"
    )
    curve: tuple[TrainingPoint, ...] = Field((), description="oldest first")
    checkpoint: str | None = Field(None, description="content hash of its best one, when done")
    hardware: str = ""
    wall_s: float | None = Field(None, description="seconds of training, when done")
    created_at: AwareDatetime = Field(default_factory=utc_now)


class DraftCheckpoint(TrainedDraft):
    """A trained draft as files, with its expected and its realised acceptance."""

    id: int | None = Field(None, description="given by the store")
    content_hash: str = Field(min_length=1, description="hash of its files")
    training_key: str = Field(description="the training that made it")
    parent_hash: str | None = Field(
        None, description="checkpoint it was trained on from, as in a second phase"
    )
    phase: int = Field(1, ge=1, le=2)
    step: int = Field(ge=0, description="optimizer steps before it was written")
    folder: str = Field(description="where its files are")
    criterion: Criterion = Field(description="the acceptance that chose it and is meant here")
    expected_length: float | None = Field(
        None, description="expected acceptance length, teacher-forced, the bonus token included"
    )
    expected_acceptance: tuple[float, ...] = Field(
        (), description="chance that a depth is accepted given that the one before was"
    )
    realised_length: float | None = Field(
        None,
        description="accepted tokens per verify step of chains in the decode loop, pooled, and the "
        "bonus token",
    )
    realised_acceptance: tuple[float, ...] = Field((), description="by depth, of the same steps")
    evaluation_key: str | None = Field(None, description="what its evaluation was asked")
    state: CheckpointState = Field(
        "candidate",
        description="validated where realised acceptance is what was expected, else rejected",
    )
    reason: str = Field("", description="what decided the state, one sentence")
    exports: tuple[str, ...] = Field((), description="folders it was exported to")
    created_at: AwareDatetime = Field(default_factory=utc_now)
