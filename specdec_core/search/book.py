"""What a strategy has been told, checked as it comes, and ranked against the dense target."""

from __future__ import annotations

import math
from collections.abc import Iterable

from specdec_core.errors import ConfigError, EvaluationFailedError
from specdec_core.search.objectives import Objective
from specdec_core.search.outcome import Failure, Loss, Ranked, Result, Score
from specdec_core.search.ranking import relative_gains
from specdec_core.skip import SkipConfig

DENSE = SkipConfig()


class ScoreBook:
    """Results by skip set. Every strategy keeps one, so that all refuse the same mistakes.

    Args:
        objective: What ranked members are ranked by.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._told: dict[SkipConfig, Score | Failure] = {}

    def __contains__(self, skip: SkipConfig) -> bool:
        return skip in self._told

    def add(self, skip: SkipConfig, result: Result, *, is_asked: bool) -> None:
        """Note a result; the same one again changes nothing.

        Raises:
            ConfigError: if `skip` was not asked for, was told before with another result, a loss
                came where a score was asked for, or the score is not finite.
            EvaluationFailedError: if the dense target itself failed.
        """
        if skip in self._told:
            if self._told[skip] != result:
                raise ConfigError(
                    f"{skip.label} was told twice with different results: {self._told[skip]} and "
                    f"{result}; evaluate each configuration once"
                )
            return
        if not is_asked:
            raise ConfigError(f"{skip.label} is not part of this search: tell what is pending")
        if isinstance(result, Loss):
            raise ConfigError(f"a score of {skip.label} was asked for, not {result}")
        if not skip.units and isinstance(result, Failure):
            raise EvaluationFailedError(
                f"the dense target could not be evaluated, so nothing can be compared with it: "
                f"{result.reason}"
            )
        if isinstance(result, Score) and not _is_finite(result):
            raise ConfigError(f"the score of {skip.label} is not a number: {result}")
        self._told[skip] = result

    def ranked(self, skip: SkipConfig) -> Ranked:
        """Return a scored configuration with gains over dense, which must be scored too."""
        score = self._told[skip]
        assert isinstance(score, Score)
        return self.ranked_with(skip, score)

    def ranked_with(self, skip: SkipConfig, score: Score) -> Ranked:
        """Return a configuration as if `score` were its own; dense must be scored."""
        dense = self._told[DENSE]
        assert isinstance(dense, Score)
        gains = relative_gains((score.acceptance, score.metric), (dense.acceptance, dense.metric))
        has_metric = dense.metric is not None
        violation = self._objective.tolerances.violation(*gains, has_metric=has_metric)
        return Ranked(
            skip,
            score,
            *gains,
            is_feasible=violation == 0.0,
            violation=violation,
            values=self._objective.values(skip, score, dense, gains),
        )

    def scored(self, skips: Iterable[SkipConfig]) -> list[Ranked]:
        """Return those that are scored, in the given order."""
        return [self.ranked(s) for s in skips if isinstance(self._told.get(s), Score)]

    def failed(self, skips: Iterable[SkipConfig]) -> tuple[tuple[SkipConfig, str], ...]:
        """Return those that could not be scored, with the reason."""
        return tuple(
            (skip, result.reason)
            for skip in skips
            if isinstance(result := self._told.get(skip), Failure)
        )


def _is_finite(score: Score) -> bool:
    return all(map(math.isfinite, (score.acceptance, score.metric or 0.0, score.nodes)))
