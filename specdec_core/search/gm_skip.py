"""GM-Skip: one greedy pass from late to early layers by metric and sparsity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specdec_core.errors import ConfigError
from specdec_core.search.book import DENSE, ScoreBook
from specdec_core.search.objectives import MetricAndSparsity
from specdec_core.search.outcome import Level, Ranked, Result, SearchOutcome, StopReason
from specdec_core.search.ranking import non_dominated
from specdec_core.search.space import check_candidates, leaves_something
from specdec_core.search.strategy import EvaluationKind
from specdec_core.skip import SkipConfig, SkipUnit


class GmSkipSearch:
    """Greedy pass by the metric: acceptance and tolerances take no part.

    Units are looked at once each, the last layer first, so that early layers are kept. A unit is
    left out for good if the metric gain plus weighted sparsity of the set with it is larger than
    that of the set without it. The pass ends with `depth` units left out, or with no unit left;
    what is left out then is the answer, which may be nothing.

    Args:
        candidates: Units that may be skipped; each once.
        depth: Most units skipped.
        objective: Weight of sparsity against the metric.

    Raises:
        ConfigError: if `candidates` is empty or repeats, or `depth` is below 1.

    Source: GM-Skip (greedy, by the metric, late to early, score against sparsity). One pass, the
    form of the objective and its weight are inferred: the paper's details were not available.
    """

    def __init__(
        self, candidates: Sequence[SkipUnit], *, depth: int, objective: MetricAndSparsity
    ) -> None:
        units = check_candidates(candidates)
        if depth < 1:
            raise ConfigError(f"depth {depth} must be at least 1")
        self._units = units
        self._depth = depth
        self._book = ScoreBook(objective)
        self._waiting = sorted(units, key=lambda u: (-u.layer, u.sort_key))[::-1]
        """Units not looked at yet, the next one last."""
        self._taken: list[SkipConfig] = []
        self._tried: list[list[SkipConfig]] = [[]]
        self._asked = self._next()

    @property
    def is_finished(self) -> bool:
        """True once the outcome is certain; nothing is pending then."""
        return not self.pending()

    @property
    def level(self) -> int:
        """Units left out so far, and the one being looked at."""
        return len(self._taken) + (0 if self.is_finished else 1)

    def pending(self) -> tuple[SkipConfig, ...]:
        """Return dense and the one set that decides what is looked at next."""
        wanted = (DENSE,) if self._asked is None else (DENSE, self._asked)
        return tuple(skip for skip in wanted if skip not in self._book)

    def kind_of(self, skip: SkipConfig) -> EvaluationKind:
        """Return ``score``: nothing else is ever asked for."""
        del skip
        return "score"

    def level_of(self, skip: SkipConfig) -> int:
        """Return the level a pending set belongs to; 0 for dense."""
        return self.level if skip.units else 0

    def tell(self, skip: SkipConfig, result: Result) -> None:
        """Record the result of one pending set; the order of telling is irrelevant.

        Raises:
            ConfigError: if it was not asked for, or its score is not finite or lacks the metric.
            EvaluationFailedError: if the dense target itself failed.
        """
        self._book.add(skip, result, is_asked=skip in self.pending())
        while self._asked is not None and not self.pending():
            self._decide(self._asked)

    def outcome(self) -> SearchOutcome:
        """Return what the finished pass found.

        Raises:
            ConfigError: if results are still pending.
        """
        if not self.is_finished:
            raise ConfigError(
                f"the search is not finished: {len(self.pending())} configurations are pending"
            )
        levels = tuple(
            self._level(number) for number, tried in enumerate(self._tried, start=1) if tried
        )
        dense = self._book.ranked(DENSE)
        taken = [m for level in levels for m in level.members if m.is_frontier]
        pool = (dense, *(member for level in levels for member in level.members))
        reason: StopReason = (
            "depth reached" if len(taken) == self._depth else "nothing left to expand"
        )
        return SearchOutcome(
            answer=taken[-1] if taken else dense,
            dense=dense,
            front=tuple(non_dominated(pool)),
            pool=pool,
            levels=levels,
            evaluated=len(pool) - 1,
            stop_reason=reason,
        )

    @property
    def _current(self) -> SkipConfig:
        return self._taken[-1] if self._taken else DENSE

    def _next(self) -> SkipConfig | None:
        """Take the next unit that adds something and return the set with it."""
        while self._waiting and len(self._taken) < self._depth:
            extended = self._current.plus(self._waiting.pop())
            if extended is not None and leaves_something(extended, self._units):
                self._tried[-1].append(extended)
                return extended
        return None

    def _decide(self, skip: SkipConfig) -> None:
        (before,) = self._book.scored([self._current])
        for after in self._book.scored([skip]):
            if after.gain > before.gain:
                self._taken.append(skip)
                if len(self._taken) < self._depth and self._waiting:
                    self._tried.append([])
        self._asked = self._next()

    def _level(self, number: int) -> Level:
        tried = self._tried[number - 1]
        ordered = sorted(self._book.scored(tried), key=_order)
        members = tuple(
            replace(member, level=number, rank=place, is_frontier=member.skip in self._taken)
            for place, member in enumerate(ordered, start=1)
        )
        return Level(number, members, self._book.failed(tried))


def _order(member: Ranked) -> tuple[float, tuple[tuple[int, int], ...]]:
    return -member.gain, member.skip.sort_key
