"""What a comparison of losses says: trainings, acceptance by setting, paired changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from db.schemas import Interval
from db.training import CheckpointState, ExpectedAcceptance, TrainingPoint
from specdec_core.config.base import Record
from specdec_core.config.draft_evaluation import DraftedShape
from specdec_core.config.training import Criterion
from specdec_core.config.training_run import LossComparisonConfig

LOSS_KIND = "compare-losses"
START = "start"
"""What the draft before training is called where losses are."""
MIN_PROMPTS = 10
"""Below so many prompts an interval by bootstrap is too narrow to be read: one that says 95 %
covers the mean of normal values 85 % of the time with 5 of them, 90 % with 10, 94 % with 30."""
_ALIKE_STARTS = ("pruned", "model")
"""Kinds of drafts that begin as the same files whatever the seed; heads are drawn from it."""


class RateTrial(Record):
    """One learning rate tried for one loss with the first seed."""

    loss: str
    learning_rate: float
    criterion: Criterion | None = None
    expected_length: float | None = Field(
        None, description="best expected acceptance length on validation data; None if it failed"
    )
    best_step: int | None = Field(
        None, description="where that was, 0 before training; None if it failed or is not known"
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

    @property
    def keeps_start(self) -> bool:
        """Whether no step was better on validation data than the draft before training."""
        return self.best_step == 0

    @property
    def last_length(self) -> float | None:
        """Expected acceptance length at the last validation, by what chose the checkpoint."""
        if self.criterion is None:
            return None
        found = [point.expected(self.criterion) for point in self.curve]
        return next((each.length for each in reversed(found) if each is not None), None)

    @property
    def lengths(self) -> LengthCurve:
        """Its curve as plain lists."""
        return LengthCurve(
            loss=self.loss,
            seed=self.seed,
            learning_rate=self.learning_rate,
            kept_step=self.best_step,
            steps=tuple(point.step for point in self.curve),
            greedy=tuple(_rounded(point.greedy) for point in self.curve),
            sampling=tuple(_rounded(point.sampling) for point in self.curve),
        )


class LengthCurve(Record):
    """Expected acceptance length of a training at every validation; entries belong together."""

    loss: str
    seed: int
    learning_rate: float
    kept_step: int | None = Field(description="of the checkpoint that was kept; 0 is the start")
    steps: tuple[int, ...] = Field(description="optimizer steps done")
    greedy: tuple[float | None, ...] = Field(
        description="a token is accepted where draft and target rank it first"
    )
    sampling: tuple[float | None, ...] = Field(
        description="overlap of both distributions at the training's temperature"
    )


def _rounded(found: ExpectedAcceptance | None) -> float | None:
    return None if found is None else round(found.length, 4)


class LossCell(Record):
    """Acceptance under one loss in one setting, all seeds and domains; bonus tokens left out."""

    loss: str = Field(description="or `start`, the draft before training")
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

    @property
    def reading(self) -> Literal["more", "less", "not told apart", "too few prompts"]:
        """What the interval decides: accepted tokens and acceptance length change with one sign."""
        if self.num_prompts < MIN_PROMPTS:
            return "too few prompts"
        if self.length.low > 0.0:
            return "more"
        return "less" if self.length.high < 0.0 else "not told apart"


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

    @property
    def length_curves(self) -> tuple[LengthCurve, ...]:
        """Expected acceptance length by step of every training that has validations."""
        return tuple(each.lengths for each in self.trainings if each.curve)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Return what there is to say, and under which losses no step was better than the start."""
        return (*self.notes, *self._start_notes())

    def _start_notes(self) -> Iterator[str]:
        trained = [each for each in self.trainings if each.best_step is not None]
        for loss in dict.fromkeys(each.loss for each in trained):
            own = [each for each in trained if each.loss == loss]
            num = sum(each.keeps_start for each in own)
            if not num:
                continue
            note = (
                f"{loss}: no step was better than the start on validation data in {num} of "
                f"{len(own)} seeds: it has the start's figures there"
            )
            if num > 1 and self.config.base.train.draft.kind in _ALIKE_STARTS:
                note += f"; these {num} seeds are one draft and count as one"
            yield note

    def changes_against(self, base: str) -> tuple[LossChange, ...]:
        """Return the changes against one loss."""
        return tuple(each for each in self.changes if each.against == base)
