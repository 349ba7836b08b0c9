"""TSS: breadth search over skip sets by acceptance and task metric, as a pure state machine.

The caller asks `TssSearch.pending` what must be scored, scores it in any order and anywhere,
and tells the results. Nothing here knows models, clocks or stores, so that the same answers
always lead to the same search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from specdec_core.errors import ConfigError, EvaluationFailedError
from specdec_core.search.outcome import (
    Failure,
    Level,
    Ranked,
    Score,
    SearchOutcome,
    StopReason,
    half_count,
)
from specdec_core.search.ranking import Objective, dominates, non_dominated, order_level
from specdec_core.skip import SkipConfig, SkipUnit

__all__ = ["Failure", "Level", "Ranked", "Score", "SearchOutcome", "TssSearch", "half_count"]


class TssSearch:
    """Acceptance- and metric-aware breadth search over skip sets.

    Every level lists the sets of one more unit, built from the best `beam` sets of the level
    before. Feasible sets come first, by non-domination rank of (acceptance, metric), inside a
    rank by summed gain; then infeasible ones by violation, then summed gain; last the
    lexicographically smallest set. Infeasible sets are expanded too when fewer than `beam` are
    feasible. The answer is the member of the final Pareto front with the largest summed gain,
    the dense target included, so it is never worse than dense on the selection items. All
    comparisons are made on values rounded to 1e-9.

    Where the dense target has no metric the metric takes no part: its gain counts as 0 and its
    tolerance as met.

    Args:
        candidates: Units that may be skipped; each once.
        beam: Sets expanded per level.
        depth: Most units skipped.
        epsilon_acceptance: Signed relative tolerance; -0.05 allows a loss of 5 %, +0.05 demands
            a gain of 5 %.
        epsilon_metric: The same for the task metric.

    Raises:
        ConfigError: if `candidates` is empty or repeats, or `beam` or `depth` is below 1.

    Source: TSS, with the procedure read from its tables. Stopping early when a level has no
    feasible member and none outside the shadow of the pool is ours, as is keeping a set that
    was listed on an earlier level out of later ones (possible with mixed units only).
    """

    def __init__(
        self,
        candidates: Sequence[SkipUnit],
        *,
        beam: int,
        depth: int,
        epsilon_acceptance: float,
        epsilon_metric: float,
    ) -> None:
        if not candidates or len(set(candidates)) != len(candidates):
            raise ConfigError(
                f"candidates {[str(unit) for unit in candidates]} must name at least one unit, "
                "and each once"
            )
        if beam < 1 or depth < 1:
            raise ConfigError(f"beam {beam} and depth {depth} must both be at least 1")
        self._candidates = tuple(sorted(candidates, key=lambda unit: unit.sort_key))
        self._beam = beam
        self._depth = depth
        self._objective = Objective(epsilon_acceptance, epsilon_metric)
        self._told: dict[SkipConfig, Score | Failure] = {}
        self._levels: list[Level] = []
        self._open = [SkipConfig.of([unit]) for unit in self._candidates]
        self._listed = {SkipConfig(), *self._open}
        self._stop_reason: StopReason | None = None

    @property
    def is_finished(self) -> bool:
        """True once the outcome is certain; nothing is pending then."""
        return self._stop_reason is not None

    @property
    def level(self) -> int:
        """Number of the level being scored, 1-based; the last one when finished."""
        return len(self._levels) + (0 if self.is_finished else 1)

    def pending(self) -> tuple[SkipConfig, ...]:
        """Return what is certainly needed and not yet told: dense first, then by level order.

        The dense target and level 1 are pending from the start; a later level is once the one
        before it is fully told.
        """
        if self.is_finished:
            return ()
        wanted = [SkipConfig(), *self._open] if not self._levels else self._open
        return tuple(skip for skip in wanted if skip not in self._told)

    def tell(self, skip: SkipConfig, result: Score | Failure) -> None:
        """Record the result of one pending configuration; the order of telling is irrelevant.

        Raises:
            ConfigError: if `skip` was not asked for, was told before with another result, or
                its score is not finite or lacks the metric that the dense target has.
            EvaluationFailedError: if the dense target itself failed.
        """
        if skip in self._told:
            if self._told[skip] != result:
                raise ConfigError(
                    f"{skip.label} was told twice with different results: {self._told[skip]} and "
                    f"{result}; evaluate each configuration once"
                )
            return
        if skip not in self._listed:
            raise ConfigError(f"{skip.label} is not part of this search: tell what is pending")
        if not skip.units and isinstance(result, Failure):
            raise EvaluationFailedError(
                f"the dense target could not be evaluated, so nothing can be compared with it: "
                f"{result.reason}"
            )
        if isinstance(result, Score) and not _is_finite(result):
            raise ConfigError(f"the score of {skip.label} is not a number: {result}")
        self._told[skip] = result
        self._advance()

    def outcome(self) -> SearchOutcome:
        """Return what the finished search found.

        Raises:
            ConfigError: if results are still pending.
        """
        if self._stop_reason is None:
            raise ConfigError(
                f"the search is not finished: {len(self.pending())} configurations are pending"
            )
        pool = self._pool()
        front = tuple(non_dominated(pool))
        return SearchOutcome(
            answer=min(front, key=_answer_key),
            dense=pool[0],
            front=front,
            pool=tuple(pool),
            levels=tuple(self._levels),
            evaluated=sum(len(level.members) for level in self._levels),
            stop_reason=self._stop_reason,
        )

    def _advance(self) -> None:
        while self._stop_reason is None and not self.pending():
            self._close_level()

    def _close_level(self) -> None:
        number = len(self._levels) + 1
        scored = [self._ranked(skip) for skip in self._open if self._is_scored(skip)]
        members = tuple(
            replace(member, level=number, rank=place, is_frontier=place <= self._beam)
            for place, member in enumerate(order_level(scored), start=1)
        )
        failed = tuple(
            (skip, result.reason)
            for skip in self._open
            if isinstance(result := self._told[skip], Failure)
        )
        self._levels.append(Level(number, members, failed))
        self._open = self._extensions(self._levels[-1].frontier)
        self._listed.update(self._open)
        self._stop_reason = self._reason_to_stop(members)

    def _reason_to_stop(self, members: tuple[Ranked, ...]) -> StopReason | None:
        if len(self._levels) == self._depth:
            return "depth reached"
        if not self._open:
            return "nothing left to expand"
        pool = self._pool()
        if not any(
            member.is_feasible or not any(dominates(other, member) for other in pool)
            for member in members
        ):
            return "no member worth expanding"
        return None

    def _extensions(self, frontier: Sequence[Ranked]) -> list[SkipConfig]:
        if len(self._levels) == self._depth:
            return []
        found = {
            extended
            for member in frontier
            for unit in self._candidates
            if (extended := member.skip.plus(unit)) is not None
            and extended not in self._listed
            and self._leaves_something(extended)
        }
        return sorted(found, key=lambda skip: skip.sort_key)

    def _leaves_something(self, skip: SkipConfig) -> bool:
        return half_count(skip) < 2 * (1 + max(unit.layer for unit in self._candidates))

    def _is_scored(self, skip: SkipConfig) -> bool:
        return isinstance(self._told[skip], Score)

    def _ranked(self, skip: SkipConfig) -> Ranked:
        score, dense = self._told[skip], self._told[SkipConfig()]
        assert isinstance(score, Score)
        assert isinstance(dense, Score)
        gains = self._objective.gains(
            (score.acceptance, score.metric), (dense.acceptance, dense.metric)
        )
        has_metric = dense.metric is not None
        violation = self._objective.violation(*gains, has_metric=has_metric)
        return Ranked(skip, score, *gains, is_feasible=violation == 0.0, violation=violation)

    def _pool(self) -> list[Ranked]:
        feasible = [m for level in self._levels for m in level.members if m.is_feasible]
        return [self._ranked(SkipConfig()), *feasible]


def _is_finite(score: Score) -> bool:
    return math.isfinite(score.acceptance) and math.isfinite(score.metric or 0.0)


def _answer_key(member: Ranked) -> tuple[float, int, tuple[tuple[int, int], ...]]:
    return -member.gain, -half_count(member.skip), member.skip.sort_key
