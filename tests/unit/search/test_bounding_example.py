"""The worked example of the breadth search once more, with sets that are dropped on the way."""

from __future__ import annotations

import pytest

from specdec_core.errors import ConfigError
from specdec_core.search.objectives import Tolerances
from specdec_core.search.outcome import Score, ScoreBounds
from specdec_core.search.promise import middle_first, promising_first
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipConfig, SkipUnit
from tests.unit.search.test_tss_example import TABLE, make, names, run


def score(search: TssSearch, *skips: str) -> None:
    for skip in skips:
        search.tell(SkipConfig.parse(skip), Score(*TABLE[skip]))


def at_most(search: TssSearch, skip: str, acceptance: float, metric: float) -> bool:
    """Narrow a set from above; return whether it was dropped for it."""
    bounds = ScoreBounds(8, 16, Score(1.0, 0.0), Score(acceptance, metric))
    search.narrow(SkipConfig.parse(skip), bounds)
    return SkipConfig.parse(skip) in search.dropped


def test_worked_example_with_five_of_twelve_sets_dropped() -> None:
    search = make(-0.05)
    # Tolerances: acceptance 1.90, metric 0.475. Two places in the frontier.
    assert not at_most(search, "1", 1.85, 0.60), "dense is not known yet"
    score(search, "", "2")
    assert not at_most(search, "4", 2.50, 0.46), "infeasible, but only one set is ahead"
    score(search, "3")
    assert set(search.dropped) == {SkipConfig.parse("1"), SkipConfig.parse("4")}
    assert search.level == 2
    score(search, "2,3", "1,3")
    # (2.20, 0.505): 23 (2.60, 0.51) dominates it, 13 (1.95, 0.55) does not.
    assert not at_most(search, "1,2", 2.20, 0.505)
    assert at_most(search, "2,4", 2.80, 0.474)
    score(search, "3,4")
    assert SkipConfig.parse("1,2") not in search.dropped
    score(search, "1,2")
    # Last level: only the front counts.
    assert at_most(search, "1,3,4", 2.40, 0.505)
    assert not at_most(search, "1,2,3", 2.50, 0.545), "13 has less acceptance, 23 less metric"
    assert at_most(search, "2,3,4", 3.00, 0.45)
    score(search, "1,2,3")
    outcome, full = search.outcome(), make(-0.05)
    run(full)
    expected = full.outcome()
    assert outcome.answer.skip == expected.answer.skip
    assert names(outcome.front) == names(expected.front)
    assert [names(level.frontier) for level in outcome.levels[:2]] == [["2", "3"], ["2,3", "1,3"]]
    assert outcome.stop_reason == expected.stop_reason
    assert (outcome.evaluated, len(outcome.dropped)) == (7, 5)
    assert [str(skip) for skip, _ in outcome.levels[0].dropped] == ["1", "4"]


def test_a_finished_set_that_comes_later_can_lift_one_that_looked_beaten() -> None:
    """Why the place among finished members is no reason to drop a set.

    Two places, everything feasible and dominated by dense. 1 and 2 are finished, and both have
    more summed gain than 3 can reach. Then 4 dominates 1 and 2 but not 3: the first rank is 4 and
    3, and 3 is extended.
    """
    table = {"": (4.0, 1.0), "1": (3.6, 0.7), "2": (3.2, 0.8), "3": (2.0, 0.95), "4": (3.8, 0.9)}
    search = make(-0.9, beam=2, depth=2)
    for skip in ("", "1", "2"):
        search.tell(SkipConfig.parse(skip), Score(*table[skip]))
    assert not at_most(search, "3", 2.0, 0.95)
    for skip in ("4", "3"):
        search.tell(SkipConfig.parse(skip), Score(*table[skip]))
    assert {str(skip) for skip in search.pending()} >= {"2,3", "1,3", "3,4"}


def test_a_set_that_alone_could_keep_the_search_going_is_finished() -> None:
    """Nothing feasible: 3 might trade metric for acceptance, which is worth expanding."""
    table = {"": (2.0, 0.5), "1": (1.0, 0.4), "2": (1.0, 0.3), "4": (1.0, 0.2)}
    search = make(0.0, beam=2, depth=2)
    for skip, values in table.items():
        search.tell(SkipConfig.parse(skip), Score(*values))
    # Shortfalls: 1 is 0.5 + 0.2, 2 is 0.5 + 0.4; 3 is 0.98 at best, but not dominated by dense.
    assert not at_most(search, "3", 2.01, 0.01)
    search.tell(SkipConfig.parse("3"), Score(1.9, 0.01))
    assert search.outcome().stop_reason == "no member worth expanding"


def test_sets_that_were_dropped_or_are_not_pending_are_refused() -> None:
    search = make(-0.05)
    score(search, "", "2", "3")
    assert at_most(search, "4", 2.50, 0.46)
    with pytest.raises(ConfigError, match="not part of this search"):
        search.tell(SkipConfig.parse("4"), Score(2.4, 0.44))
    with pytest.raises(ConfigError, match="4 is not pending"):
        at_most(search, "4", 2.5, 0.45)
    with pytest.raises(ConfigError, match="2,3 is not pending"):
        at_most(search, "2,3", 2.5, 0.45)


def test_sets_are_asked_for_in_the_order_of_their_promise() -> None:
    singles = [SkipConfig.of([SkipUnit(layer)]) for layer in (1, 2, 3, 4, 5, 8)]
    # The centre of 1 and 8 is 4.5.
    assert names_of(middle_first(singles)) == ["4", "5", "3", "2", "1", "8"]
    gains = {
        SkipUnit(1): (-0.1, 0.04),
        SkipUnit(2): (0.15, -0.02),
        SkipUnit(3): (0.05, 0.06),
        SkipUnit(4): (0.2, -0.12),
    }
    pairs = [SkipConfig.parse(text) for text in ("1,2", "1,3", "1,4", "2,3", "2,4", "3,4")]
    # Sums: 12 (.05, .02), 13 (-.05, .10), 14 (.10, -.08), 23 (.20, .04), 24 (.35, -.14),
    # 34 (.25, -.06); at -5 % the last three short by .03, .01 and .09.
    ordered = promising_first(pairs, gains, Tolerances(-0.05, -0.05))
    assert names_of(ordered) == ["2,3", "1,2", "1,3", "3,4", "1,4", "2,4"]
    # A unit that was dropped counts as the worst known, (-0.1, 0.04).
    del gains[SkipUnit(3)]
    assert names_of(promising_first(pairs[:2], gains, Tolerances())) == ["1,2", "1,3"]


def names_of(skips: list[SkipConfig]) -> list[str]:
    return [str(skip) for skip in skips]
