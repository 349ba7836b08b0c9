"""Random skip sets of every size: what leaving out that much does without any search."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from specdec_core.errors import ConfigError
from specdec_core.randomness import derive_seed, shuffling_generator
from specdec_core.search.book import DENSE, ScoreBook
from specdec_core.search.objectives import BothGains
from specdec_core.search.outcome import DrawStatistics, Level, Ranked, Result, SearchOutcome
from specdec_core.search.ranking import non_dominated, order_level
from specdec_core.search.space import check_candidates, leaves_something
from specdec_core.search.strategy import EvaluationKind
from specdec_core.skip import SkipConfig, SkipUnit

MIN_DRAWS = 5
_ATTEMPTS = 1000
"""Shuffles in a row without a new set that end the draws: the space has (nearly) no more."""


class RandomSearch:
    """Several uniform draws per size, 1 to `depth`; neither scores nor tolerances choose.

    Sets of one size differ. The answer is a typical one: among the draws of the largest size that
    has any, the lower median by summed gain of acceptance and metric. Mean and spread of every
    size are part of the outcome.

    Args:
        candidates: Units that may be skipped; each once.
        depth: Largest size.
        num_draws: Draws per size.
        seed: Draws depend on it, their size and number, and on nothing else.

    Raises:
        ConfigError: if `candidates` is empty or repeats, or a number is too small.

    Source: the random baseline of TSS, which is one draw; several, and their spread, are ours.
    """

    def __init__(
        self, candidates: Sequence[SkipUnit], *, depth: int, num_draws: int, seed: int
    ) -> None:
        units = check_candidates(candidates)
        if depth < 1 or num_draws < MIN_DRAWS:
            raise ConfigError(
                f"depth {depth} must be at least 1, and draws {num_draws} at least {MIN_DRAWS}"
            )
        self._book = ScoreBook(BothGains())
        self._drawn: list[tuple[SkipConfig, ...]] = []
        for size in range(1, min(depth, len(units)) + 1):
            # With mixed units two halves are the block that a smaller size may have drawn.
            earlier = {skip for drawn in self._drawn for skip in drawn}
            self._drawn.append(draw_sets(units, size, num_draws, seed, earlier))

    @property
    def is_finished(self) -> bool:
        """True once the outcome is certain; nothing is pending then."""
        return not self.pending()

    @property
    def level(self) -> int:
        """Smallest size that is not scored yet; the largest one when finished."""
        open_sizes = (self.level_of(skip) for skip in self.pending() if skip.units)
        return next(open_sizes, len(self._drawn))

    def pending(self) -> tuple[SkipConfig, ...]:
        """Return every draw not yet told: all is needed, and known, from the start."""
        wanted = [DENSE, *(skip for drawn in self._drawn for skip in drawn)]
        return tuple(skip for skip in wanted if skip not in self._book)

    def kind_of(self, skip: SkipConfig) -> EvaluationKind:
        """Return ``score``: nothing else is ever asked for."""
        del skip
        return "score"

    def level_of(self, skip: SkipConfig) -> int:
        """Return the size for which a set was drawn; 0 for dense."""
        sizes = (size for size, drawn in enumerate(self._drawn, start=1) if skip in drawn)
        return next(sizes, 0)

    def tell(self, skip: SkipConfig, result: Result) -> None:
        """Record the result of one pending set; the order of telling is irrelevant.

        Raises:
            ConfigError: if it was not asked for, or its score is not finite.
            EvaluationFailedError: if the dense target itself failed.
        """
        self._book.add(skip, result, is_asked=skip in self.pending())

    def outcome(self) -> SearchOutcome:
        """Return what the draws reached.

        Raises:
            ConfigError: if results are still pending.
        """
        if not self.is_finished:
            raise ConfigError(
                f"the search is not finished: {len(self.pending())} configurations are pending"
            )
        dense = self._book.ranked(DENSE)
        levels = tuple(self._level(size) for size in range(1, len(self._drawn) + 1))
        pool = (dense, *(member for level in levels for member in level.members))
        largest = next((level.members for level in reversed(levels) if level.members), ())
        return SearchOutcome(
            answer=_median(largest) if largest else dense,
            dense=dense,
            front=tuple(non_dominated(pool)),
            pool=pool,
            levels=levels,
            evaluated=len(pool) - 1,
            stop_reason="depth reached",
            draws=tuple(_statistics(level) for level in levels if level.members),
        )

    def _level(self, size: int) -> Level:
        drawn = self._drawn[size - 1]
        members = tuple(
            replace(member, level=size, rank=place)
            for place, member in enumerate(order_level(self._book.scored(drawn)), start=1)
        )
        return Level(size, members, self._book.failed(drawn))


def draw_sets(
    units: Sequence[SkipUnit],
    size: int,
    num_draws: int,
    seed: int,
    excluded: Collection[SkipConfig] = (),
) -> tuple[SkipConfig, ...]:
    """Return different sets of `size` additions, in the order drawn; fewer where there are fewer.

    A draw adds the units of a shuffle until it has added `size`; what a set leaves out already
    counts as nothing added.
    """
    found: dict[SkipConfig, None] = {}
    attempt = num_in_vain = 0
    while len(found) < num_draws and num_in_vain < _ATTEMPTS:
        shuffled = list(units)
        shuffling_generator(derive_seed(seed, "random-skip", size, attempt)).shuffle(shuffled)
        attempt, num_in_vain = attempt + 1, num_in_vain + 1
        skip, num_added = DENSE, 0
        for unit in shuffled:
            if num_added == size:
                break
            extended = skip.plus(unit)
            if extended is not None and leaves_something(extended, units):
                skip, num_added = extended, num_added + 1
        if num_added == size and skip not in excluded and skip not in found:
            found[skip] = None
            num_in_vain = 0
    return tuple(found)


def _median(members: Sequence[Ranked]) -> Ranked:
    ordered = sorted(members, key=lambda member: (member.gain, member.skip.sort_key))
    return ordered[(len(ordered) - 1) // 2]


def _statistics(level: Level) -> DrawStatistics:
    acceptance = [member.score.acceptance for member in level.members]
    metric = [m.score.metric for m in level.members if m.score.metric is not None]
    return DrawStatistics(
        level.number,
        len(level.members),
        _mean(acceptance),
        _sd(acceptance),
        _mean(metric) if metric else None,
        _sd(metric) if metric else None,
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sd(values: Sequence[float]) -> float:
    """Sample standard deviation; 0 of one value."""
    centre = _mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / max(1, len(values) - 1))
