"""SLEB: leave out, one at a time, the unit that costs the language-modelling loss least."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from specdec_core.errors import ConfigError
from specdec_core.search.book import DENSE, ScoreBook
from specdec_core.search.objectives import BothGains
from specdec_core.search.outcome import Failure, Level, Loss, Result, SearchOutcome, StopReason
from specdec_core.search.ranking import DIGITS, non_dominated
from specdec_core.search.space import check_candidates, leaves_something
from specdec_core.search.strategy import EvaluationKind
from specdec_core.skip import SkipConfig, SkipUnit


class SlebSearch:
    """Greedy removal by loss: neither acceptance nor the metric nor tolerances take part.

    Level k lists the set of level k - 1 with one more unit each and keeps the one of lowest
    loss, compared rounded to 1e-9, the lexicographically smallest where equal. After `depth`
    levels the set that is left is scored once, and is the answer; if it cannot be scored, the
    set of the level before is.

    Args:
        candidates: Units that may be skipped; each once.
        depth: Units to leave out.

    Raises:
        ConfigError: if `candidates` is empty or repeats, or `depth` is below 1.

    Source: SLEB (greedy verification by calibration loss, first and last block protected). The
    release takes the loss of WikiText-2; here it is that of the selection items' references.
    """

    def __init__(self, candidates: Sequence[SkipUnit], *, depth: int) -> None:
        self._candidates = check_candidates(candidates)
        if depth < 1:
            raise ConfigError(f"depth {depth} must be at least 1")
        self._depth = depth
        self._book = ScoreBook(BothGains())
        self._losses: dict[SkipConfig, Loss | Failure] = {}
        self._open = [SkipConfig.of([unit]) for unit in self._candidates]
        self._levels: list[Level] = []
        self._path: list[SkipConfig] = []
        self._reason: StopReason | None = None
        """Why removal ended; the answer may still have to be scored then."""

    @property
    def is_finished(self) -> bool:
        """True once the outcome is certain; nothing is pending then."""
        return not self.pending()

    @property
    def level(self) -> int:
        """Number of the level in progress, 1-based; the last one once removal has ended."""
        return len(self._levels) + (0 if self._reason else 1)

    def pending(self) -> tuple[SkipConfig, ...]:
        """Return what is certainly needed: dense, losses of the level, at last the answer."""
        losses = [] if self._reason else [s for s in self._open if s not in self._losses]
        scores = [DENSE, *(self._path[-1:] if self._reason else ())]
        return (*(skip for skip in scores if skip not in self._book), *losses)

    def kind_of(self, skip: SkipConfig) -> EvaluationKind:
        """Return ``score`` for dense and for the answer, ``loss`` on the way to it."""
        return "score" if self._reason or not skip.units else "loss"

    def level_of(self, skip: SkipConfig) -> int:
        """Return the level a pending set belongs to; 0 for dense."""
        return self.level if skip.units else 0

    def tell(self, skip: SkipConfig, result: Result) -> None:
        """Record the result of one pending set; the order of telling is irrelevant.

        Raises:
            ConfigError: if it was not asked for, or not in this way, or is not a number.
            EvaluationFailedError: if the dense target itself failed.
        """
        is_asked = skip in self.pending()
        if self._losses.get(skip) == result:
            return
        if skip.units and not self._reason and is_asked:
            self._tell_loss(skip, result)
            return
        self._book.add(skip, result, is_asked=is_asked)
        if skip.units and isinstance(result, Failure):
            failed = (*self._levels[len(self._path) - 1].failed, (skip, result.reason))
            self._levels[len(self._path) - 1] = replace(
                self._levels[len(self._path) - 1], failed=failed
            )
            self._path.pop()

    def outcome(self) -> SearchOutcome:
        """Return what the finished search found.

        Raises:
            ConfigError: if results are still pending.
        """
        if self._reason is None or not self.is_finished:
            raise ConfigError(
                f"the search is not finished: {len(self.pending())} configurations are pending"
            )
        dense = self._book.ranked(DENSE)
        answer, levels = dense, list(self._levels)
        if self._path:
            number = len(self._path)
            answer = replace(
                self._book.ranked(self._path[-1]), level=number, rank=1, is_frontier=True
            )
            levels[number - 1] = replace(levels[number - 1], members=(answer,))
        pool = (dense, answer) if self._path else (dense,)
        return SearchOutcome(
            answer=answer,
            dense=dense,
            front=tuple(non_dominated(pool)),
            pool=pool,
            levels=tuple(levels),
            evaluated=sum(len(level.losses) + len(level.members) for level in levels),
            stop_reason=self._reason,
        )

    def _tell_loss(self, skip: SkipConfig, result: Result) -> None:
        if not isinstance(result, Loss | Failure):
            raise ConfigError(f"the loss of {skip.label} was asked for, not {result}")
        if isinstance(result, Loss) and not math.isfinite(result.nats):
            raise ConfigError(f"the loss of {skip.label} is not a number: {result}")
        self._losses[skip] = result
        while self._reason is None and all(one in self._losses for one in self._open):
            self._close_level()

    def _close_level(self) -> None:
        found = {s: own.nats for s in self._open if isinstance(own := self._losses[s], Loss)}
        ordered = sorted(found, key=lambda skip: (round(found[skip], DIGITS), skip.sort_key))
        failed = tuple(
            (s, own.reason) for s in self._open if isinstance(own := self._losses[s], Failure)
        )
        losses = tuple((skip, found[skip]) for skip in ordered)
        self._levels.append(Level(len(self._levels) + 1, (), failed, losses))
        if not ordered:
            self._reason = "nothing left to expand"
            return
        self._path.append(ordered[0])
        self._open = [
            extended
            for unit in self._candidates
            if (extended := ordered[0].plus(unit)) is not None
            and leaves_something(extended, self._candidates)
        ]
        if len(self._levels) == self._depth:
            self._reason = "depth reached"
        elif not self._open:
            self._reason = "nothing left to expand"
