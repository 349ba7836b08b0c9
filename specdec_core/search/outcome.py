"""What a search is told and what it finds, as plain records, whatever its strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specdec_core.search.ranking import DIGITS
from specdec_core.skip import SkipConfig, UnitKind

StopReason = Literal["depth reached", "nothing left to expand", "no member worth expanding"]


@dataclass(frozen=True, slots=True)
class Score:
    """What one configuration reached on the selection items."""

    acceptance: float
    """Committed tokens per verify step, pooled."""
    metric: float | None
    """Mean task metric in [0, 1], or mean agreement with the dense output; None without either."""
    nodes: float = 1.0
    """Nodes per verify step, root included: what a step's time depends on."""


@dataclass(frozen=True, slots=True)
class ScoreBounds:
    """Between which scores the whole evaluation of one skip set will lie."""

    num_done: int
    """Items decoded so far."""
    num_items: int
    low: Score
    high: Score
    metric_name: str = "metric"

    @property
    def text(self) -> str:
        """For people: how far it came and what it could still have reached."""
        metric = "" if self.high.metric is None else f", {self.metric_name} {self.high.metric:.4f}"
        return (
            f"after {self.num_done} of {self.num_items} items, at most acceptance "
            f"{self.high.acceptance:.3f}{metric}"
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """Language-modelling loss of one configuration on the selection items."""

    nats: float
    """Mean negative log-likelihood per token; lower is better."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A configuration that could not be scored; it is recorded and takes no part in ranking."""

    reason: str


Result = Score | Loss | Failure


@dataclass(frozen=True, slots=True)
class Ranked:
    """One scored configuration with its place in the search."""

    skip: SkipConfig
    score: Score
    gain_acceptance: float
    """Acceptance / dense acceptance - 1."""
    gain_metric: float
    """Metric / dense metric - 1; the plain difference where the dense metric is below 0.001."""
    is_feasible: bool
    violation: float
    """Summed shortfall of both gains below their tolerances; 0 if feasible."""
    level: int = 0
    """Level on which it was first listed; 0 is the dense target."""
    rank: int = 0
    """1-based place in the order of its level; 0 for the dense target."""
    is_frontier: bool = False
    """Whether the next level extends it."""
    values: tuple[float, ...] = ()
    """What the strategy maximises; empty where that is both gains."""

    @property
    def objectives(self) -> tuple[float, ...]:
        """What the strategy maximises, all of it; dense is 0 in each."""
        return self.values or (self.gain_acceptance, self.gain_metric)

    @property
    def gain(self) -> float:
        """Sum of the objectives: what breaks ties and picks the answer."""
        return round(sum(self.objectives), DIGITS)


@dataclass(frozen=True, slots=True)
class Level:
    """One finished level: members best first, and those that failed."""

    number: int
    members: tuple[Ranked, ...]
    failed: tuple[tuple[SkipConfig, str], ...] = ()
    losses: tuple[tuple[SkipConfig, float], ...] = ()
    """Sets of which only the loss was asked, nats per token, lowest first."""
    dropped: tuple[tuple[SkipConfig, ScoreBounds], ...] = ()
    """Sets left unfinished once it was certain that they change nothing."""

    @property
    def frontier(self) -> tuple[Ranked, ...]:
        """Members whose extensions make up the next level."""
        return tuple(member for member in self.members if member.is_frontier)


@dataclass(frozen=True, slots=True)
class DrawStatistics:
    """What random sets of one size reached: mean and standard deviation over the draws."""

    size: int
    """Units left out."""
    num_draws: int
    acceptance_mean: float
    acceptance_sd: float
    metric_mean: float | None
    metric_sd: float | None


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """Everything a finished search found."""

    answer: Ranked
    dense: Ranked
    front: tuple[Ranked, ...]
    pool: tuple[Ranked, ...]
    levels: tuple[Level, ...]
    evaluated: int
    """Configurations scored, or whose loss was taken; neither the dense target nor sets that were
    dropped unfinished are counted."""
    stop_reason: StopReason
    draws: tuple[DrawStatistics, ...] = ()
    """By size, where sets were drawn at random."""

    @property
    def failed(self) -> tuple[tuple[SkipConfig, str], ...]:
        """Every configuration that could not be scored, with its reason."""
        return tuple(failure for level in self.levels for failure in level.failed)

    @property
    def dropped(self) -> tuple[tuple[SkipConfig, ScoreBounds], ...]:
        """Every set that was left unfinished, with what it could still have reached."""
        return tuple(dropped for level in self.levels for dropped in level.dropped)

    @property
    def members(self) -> tuple[Ranked, ...]:
        """Every scored configuration but the dense one, by level and rank."""
        return tuple(member for level in self.levels for member in level.members)


def half_count(skip: SkipConfig) -> int:
    """Layer halves left out; a block counts as two."""
    return sum(2 if unit.kind is UnitKind.BLOCK else 1 for unit in skip.units)
