"""TSS: breadth search over skip sets, by default by acceptance and task metric.

A pure state machine, see `Strategy`. It can also be told what an unfinished set can still become,
and drops those that change nothing any more, see `bounding`. What it maximises is an `Objective`,
so that the same search serves the paper's ablations (acceptance alone, metric alone) and predicted
throughput.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Literal

from specdec_core.errors import ConfigError
from specdec_core.search.book import DENSE, ScoreBook
from specdec_core.search.bounding import Finished, is_superfluous, is_worth_expanding
from specdec_core.search.objectives import Objective
from specdec_core.search.outcome import (
    Level,
    Ranked,
    Result,
    ScoreBounds,
    SearchOutcome,
    StopReason,
    half_count,
)
from specdec_core.search.promise import middle_first, promising_first, single_gains
from specdec_core.search.ranking import non_dominated, order_level
from specdec_core.search.space import check_candidates, leaves_something
from specdec_core.search.strategy import EvaluationKind
from specdec_core.skip import SkipConfig, SkipUnit


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
        asking: Order of `pending`: ``model`` is that of the units, ``promise`` that of a guess at
            what is good. Results do not depend on it.

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
        objective: Objective,
        asking: Literal["model", "promise"] = "model",
    ) -> None:
        self._candidates = check_candidates(candidates)
        if beam < 1 or depth < 1:
            raise ConfigError(f"beam {beam} and depth {depth} must both be at least 1")
        self._beam = beam
        self._depth = depth
        self._objective = objective
        self._book = ScoreBook(objective)
        self._levels: list[Level] = []
        self._open = [SkipConfig.of([unit]) for unit in self._candidates]
        self._is_guessing = asking == "promise"
        self._asking = middle_first(self._open) if self._is_guessing else self._open
        self._bounds: dict[SkipConfig, ScoreBounds] = {}
        self._dropped: dict[SkipConfig, ScoreBounds] = {}
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
        """Return what is needed and neither told nor dropped: dense first, then as `asking` says.

        The dense target and level 1 are pending from the start; a later level is once the one
        before it is fully told. Without bounds nothing is dropped: all of it is certainly needed.
        """
        if self.is_finished:
            return ()
        wanted = [DENSE, *self._asking] if not self._levels else self._asking
        return tuple(
            skip for skip in wanted if skip not in self._book and skip not in self._dropped
        )

    @property
    def dropped(self) -> Mapping[SkipConfig, ScoreBounds]:
        """Sets that are not needed any more, with what they could still have become."""
        return MappingProxyType(self._dropped)

    def kind_of(self, skip: SkipConfig) -> EvaluationKind:
        """Return ``score``: nothing else is ever asked for."""
        del skip
        return "score"

    def level_of(self, skip: SkipConfig) -> int:
        """Return the level a pending set belongs to; 0 for dense."""
        return self.level if skip.units else 0

    def tell(self, skip: SkipConfig, result: Result) -> None:
        """Record the result of one pending configuration; the order of telling is irrelevant.

        A set that was dropped is not told any more.

        Raises:
            ConfigError: if `skip` was not asked for, was told before with another result, or
                its score is not finite or lacks the metric that the dense target has.
            EvaluationFailedError: if the dense target itself failed.
        """
        is_asked = skip in self._listed and skip not in self._dropped
        self._book.add(skip, result, is_asked=is_asked)
        self._bounds.pop(skip, None)
        self._advance()

    def narrow(self, skip: SkipConfig, bounds: ScoreBounds) -> None:
        """Record what a pending set can still become; it or others may be dropped for it.

        Objectives must not depend on anything but acceptance and metric, and grow with both.

        Raises:
            ConfigError: if `skip` is not pending.
        """
        if skip not in self.pending():
            raise ConfigError(f"{skip.label} is not pending: only what is needed has bounds")
        self._bounds[skip] = bounds
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
        self._drop()
        while self._stop_reason is None and not self.pending():
            self._close_level()

    def _drop(self) -> None:
        """Drop the sets whose bounds say that they change nothing."""
        if not self._bounds or DENSE not in self._book:
            return
        members = self._book.scored(self._open)
        earlier = [member for level in self._levels for member in level.members]
        is_last = len(self._levels) + 1 == self._depth
        finished = Finished(
            members,
            pool=[*self._pool(), *(member for member in members if member.is_feasible)],
            sparse=[*earlier, *members],
            num_places=None if is_last else self._beam,
        )
        for skip, bounds in tuple(self._bounds.items()):
            best = self._book.ranked_with(skip, bounds.high)
            if skip.units and is_superfluous(best, finished):
                self._dropped[skip] = self._bounds.pop(skip)

    def _close_level(self) -> None:
        number = len(self._levels) + 1
        members = tuple(
            replace(member, level=number, rank=place, is_frontier=place <= self._beam)
            for place, member in enumerate(order_level(self._book.scored(self._open)), start=1)
        )
        dropped = tuple((s, self._dropped[s]) for s in self._open if s in self._dropped)
        failed = self._book.failed(self._open)
        self._levels.append(Level(number, members, failed, dropped=dropped))
        self._open = self._asking = self._extensions(self._levels[-1].frontier)
        if self._is_guessing:
            singles = single_gains(self._levels[0].members)
            self._asking = promising_first(self._open, singles, self._objective.tolerances)
        self._listed.update(self._open)
        self._stop_reason = self._reason_to_stop(members)

    def _reason_to_stop(self, members: tuple[Ranked, ...]) -> StopReason | None:
        if len(self._levels) == self._depth:
            return "depth reached"
        if not self._open:
            return "nothing left to expand"
        pool = self._pool()
        if not any(is_worth_expanding(member, pool) for member in members):
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
