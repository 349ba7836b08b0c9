"""What a breadth search maximises and which tolerances it keeps: one small object per strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specdec_core.search.outcome import Score
from specdec_core.search.ranking import DIGITS
from specdec_core.search.step_model import StepTimeModel
from specdec_core.skip import SkipConfig


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Signed relative tolerances: -0.05 allows a loss of 5 %, +0.05 demands a gain of 5 %.

    One that is None takes no part.
    """

    acceptance: float | None = None
    metric: float | None = None

    def violation(self, gain_acceptance: float, gain_metric: float, *, has_metric: bool) -> float:
        """Summed shortfall of the gains below their tolerances, rounded to 1e-9; 0 is feasible."""
        short = 0.0
        if self.acceptance is not None:
            short += max(0.0, self.acceptance - gain_acceptance)
        if self.metric is not None and has_metric:
            short += max(0.0, self.metric - gain_metric)
        return round(short, DIGITS)


class Objective(Protocol):
    """What is maximised over skip sets."""

    @property
    def tolerances(self) -> Tolerances:
        """What a feasible set keeps."""
        ...

    def values(
        self, skip: SkipConfig, score: Score, dense: Score, gains: tuple[float, float]
    ) -> tuple[float, ...]:
        """Return what is maximised, rounded to 1e-9; `gains` are (acceptance, metric) over dense.

        The dense target itself must have 0 in each.
        """
        ...


@dataclass(frozen=True, slots=True)
class BothGains:
    """Acceptance and metric without a fixed priority: Pareto ranking (TSS)."""

    tolerances: Tolerances = Tolerances()

    def values(
        self, skip: SkipConfig, score: Score, dense: Score, gains: tuple[float, float]
    ) -> tuple[float, ...]:
        """Return both gains."""
        del skip, score, dense
        return gains


@dataclass(frozen=True, slots=True)
class AcceptanceGain:
    """Acceptance alone; give tolerances without a metric."""

    tolerances: Tolerances

    def values(
        self, skip: SkipConfig, score: Score, dense: Score, gains: tuple[float, float]
    ) -> tuple[float, ...]:
        """Return the gain of acceptance."""
        del skip, score, dense
        return (gains[0],)


@dataclass(frozen=True, slots=True)
class MetricGain:
    """The task metric alone; give tolerances without acceptance."""

    tolerances: Tolerances

    def values(
        self, skip: SkipConfig, score: Score, dense: Score, gains: tuple[float, float]
    ) -> tuple[float, ...]:
        """Return the gain of the metric."""
        del skip, score, dense
        return (gains[1],)


@dataclass(frozen=True, slots=True)
class SpeedGain:
    """Predicted tokens per second: acceptance length / predicted step time; ours.

    The model is measured before the search and fixed for it: no clock runs inside.
    """

    tolerances: Tolerances
    model: StepTimeModel

    def values(
        self, skip: SkipConfig, score: Score, dense: Score, gains: tuple[float, float]
    ) -> tuple[float, ...]:
        """Return predicted tokens per second over those of dense, - 1."""
        del gains
        sparse = score.acceptance / self.model.seconds(skip, score.nodes)
        before = dense.acceptance / self.model.seconds(SkipConfig(), dense.nodes)
        return (round(sparse / before - 1.0, DIGITS),)


@dataclass(frozen=True, slots=True)
class MetricAndSparsity:
    """The metric, and what leaving layers out is worth: the trade-off of a greedy pass.

    Source: GM-Skip (a score-sparsity trade-off); its weights were not available to us, so the
    form, relative gain of the metric plus weight times sparsity, is inferred.
    """

    weight: float
    """Relative metric that leaving out every layer would be worth."""
    num_layers: int
    tolerances: Tolerances = Tolerances()

    def values(
        self, skip: SkipConfig, score: Score, dense: Score, gains: tuple[float, float]
    ) -> tuple[float, ...]:
        """Return the gain of the metric plus the weighted share of layers left out."""
        del score, dense
        return (round(gains[1] + self.weight * skip.sparsity(self.num_layers), DIGITS),)
