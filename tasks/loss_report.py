"""What a comparison of losses says: trainings, acceptance by setting, paired changes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from db.schemas import Interval
from db.training import CheckpointState, TrainingPoint
from specdec_core.config.base import Record
from specdec_core.config.draft_evaluation import DraftedShape
from specdec_core.config.training import Criterion
from specdec_core.config.training_run import LossComparisonConfig

LOSS_KIND = "compare-losses"


class RateTrial(Record):
    """One learning rate tried for one loss with the first seed."""

    loss: str
    learning_rate: float
    criterion: Criterion | None = None
    expected_length: float | None = Field(
        None, description="best expected acceptance length on validation data; None if it failed"
    )
    is_chosen: bool = False
    error: str | None = None


class LossTraining(Record):
    """One training of the comparison."""

    loss: str
    seed: int
    learning_rate: float
    run_id: str | None = Field(None, description="training run; None if it failed")
    checkpoint_id: int | None = None
    state: CheckpointState | None = None
    criterion: Criterion | None = None
    start_length: float | None = Field(
        None, description="expected acceptance length of the untrained draft"
    )
    best_length: float | None = None
    best_step: int | None = None
    curve: tuple[TrainingPoint, ...] = Field((), description="validations alone")
    error: str | None = None


class LossCell(Record):
    """Acceptance under one loss in one setting, all seeds and domains; bonus tokens left out."""

    loss: str
    shape: DraftedShape
    temperature: float
    num_seeds: int
    num_prompts: int = Field(description="that every seed of every loss answered")
    num_steps: int = Field(description="verify steps of all seeds")
    accepted_per_step: Interval = Field(
        description="accepted tokens / steps, pooled; interval over prompts, seeds kept together"
    )
    by_domain: dict[str, float] = Field(description="the same by domain")
    seed_means: tuple[float, ...] = Field(description="per seed, mean over domains")
    p25: float = Field(description="quartile of accepted tokens per step")
    median: float
    p75: float

    @property
    def mean(self) -> float:
        """Mean over seeds of the mean over domains, as EAL's tables have it."""
        return sum(self.seed_means) / len(self.seed_means)

    @property
    def sd(self) -> float | None:
        """Standard deviation over seeds, of the sample; None for one seed."""
        count = len(self.seed_means)
        if count < 2:
            return None
        return float((sum((x - self.mean) ** 2 for x in self.seed_means) / (count - 1)) ** 0.5)


class LossChange(Record):
    """One loss against another in one setting, paired by prompt."""

    loss: str
    against: str
    shape: DraftedShape
    temperature: float
    num_prompts: int
    accepted: Interval | None = Field(
        description="relative change of accepted tokens per step, bonus left out; None where the "
        "other accepts nothing"
    )
    length: Interval = Field(
        description="relative change of acceptance length, bonus token included"
    )


class LossReport(Record):
    """The result of a comparison of losses; stored as the summary of its run."""

    kind: Literal["compare-losses"] = "compare-losses"
    run_id: str
    headline: str
    config: LossComparisonConfig
    target: str
    draft: str
    rates: tuple[RateTrial, ...] = ()
    trainings: tuple[LossTraining, ...]
    cells: tuple[LossCell, ...]
    changes: tuple[LossChange, ...]
    notes: tuple[str, ...] = ()
    log_file: str = ""

    @property
    def is_good(self) -> bool:
        """Whether every training came to its end and none was rejected."""
        return all(each.error is None and each.state != "rejected" for each in self.trainings)

    def changes_against(self, base: str) -> tuple[LossChange, ...]:
        """Return the changes against one loss."""
        return tuple(each for each in self.changes if each.against == base)
