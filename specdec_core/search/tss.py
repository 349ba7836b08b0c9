"""TSS: breadth search over skip sets, by default by acceptance and task metric.

A pure state machine, see `Strategy`. What it maximises is an `Objective`, so that the same search
serves the paper's ablations (acceptance alone, metric alone) and predicted throughput.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec_core.errors import ConfigError
from specdec_core.search.book import DENSE, ScoreBook
from specdec_core.search.objectives import Objective
from specdec_core.search.outcome import (
    Failure,
    Level,
    Ranked,
    Result,
    Score,
    SearchOutcome,
    StopReason,
    half_count,
)
from specdec_core.search.ranking import dominates, non_dominated, order_level
from specdec_core.search.space import check_candidates, leaves_something
from specdec_core.search.strategy import EvaluationKind
from specdec_core.skip import SkipConfig, SkipUnit

__all__ = ["Failure", "Level", "Ranked", "Score", "SearchOutcome", "TssSearch", "half_count"]


class TssSearch:
    """Breadth search over skip sets, aware of acceptance and metric with the objective `BothGains`.

    Every level lists the sets of one more unit, built from the best `beam` sets of the level
    before. Feasible sets come first, by non-domination rank of the objectives, inside a rank by
    their sum; then infeasible ones by violation, then that sum; last the lexicographically
    smallest set. Infeasible sets are expanded too when fewer than `beam` are feasible. The answer
    is the member of the final Pareto front with the largest sum, the dense target included, so it
    is never worse than dense on the selection items. All comparisons are made on values rounded
    to 1e-9.

    Where the dense target has no metric the metric takes no part: its gain counts as 0 and its
    tolerance as met.

    Args:
        candidates: Units that may be skipped; each once.
        beam: Sets expanded per level.
        depth: Most units skipped.
        objective: What is maximised, and which tolerances a feasible set keeps.

    Raises:
        ConfigError: if `candidates` is empty or repeats, or `beam` or `depth` is below 1.

    Source: TSS, with the procedure read from its tables. Stopping early when a level has no
    feasible member and none outside the shadow of the pool is ours, as is keeping a set that
    was listed on an earlier level out of later ones (possible with mixed units only).
    """

    def __init__(
        self, candidates: Sequence[SkipUnit], *, beam: int, depth: int, objective: Objective
    ) -> None:
        self._candidates = check_candidates(candidates)
        if beam < 1 or depth < 1:
            raise ConfigError(f"beam {beam} and depth {depth} must both be at least 1")
        self._beam = beam
        self._depth = depth
        self._book = ScoreBook(objective)
        self._levels: list[Level] = []
        self._open = [SkipConfig.of([unit]) for unit in self._candidates]
        self._listed = {DENSE, *self._open}
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
        wanted = [DENSE, *self._open] if not self._levels else self._open
        return tuple(skip for skip in wanted if skip not in self._book)

    def kind_of(self, skip: SkipConfig) -> EvaluationKind:
        """Return ``score``: nothing else is ever asked for."""
        del skip
        return "score"

    def level_of(self, skip: SkipConfig) -> int:
        """Return the level a pending set belongs to; 0 for dense."""
        return self.level if skip.units else 0

    def tell(self, skip: SkipConfig, result: Result) -> None:
        """Record the result of one pending configuration; the order of telling is irrelevant.

        Raises:
            ConfigError: if `skip` was not asked for, was told before with another result, or
                its score is not finite or lacks the metric that the dense target has.
            EvaluationFailedError: if the dense target itself failed.
        """
        self._book.add(skip, result, is_asked=skip in self._listed)
        while self._stop_reason is None and not self.pending():
            self._close_level()

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

    def _close_level(self) -> None:
        number = len(self._levels) + 1
        members = tuple(
            replace(member, level=number, rank=place, is_frontier=place <= self._beam)
            for place, member in enumerate(order_level(self._book.scored(self._open)), start=1)
        )
        self._levels.append(Level(number, members, self._book.failed(self._open)))
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
            and leaves_something(extended, self._candidates)
        }
        return sorted(found, key=lambda skip: skip.sort_key)

    def _pool(self) -> list[Ranked]:
        feasible = [m for level in self._levels for m in level.members if m.is_feasible]
        return [self._book.ranked(DENSE), *feasible]


def _answer_key(member: Ranked) -> tuple[float, int, tuple[tuple[int, int], ...]]:
    return -member.gain, -half_count(member.skip), member.skip.sort_key
