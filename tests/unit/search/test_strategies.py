"""Every strategy on the worked example's table, each order worked out by hand in the comments.

The table, acceptance and metric, dense 2.0 and 0.50 (relative gains in brackets):

    1    1.80 (-10 %)  .52 ( +4 %)   12  2.00 (  0 %)  .50 (  0 %)   123  2.40 (+20 %)  .54 ( +8 %)
    2    2.30 (+15 %)  .49 ( -2 %)   13  1.95 (-2.5%)  .55 (+10 %)   124  2.50 (+25 %)  .45 (-10 %)
    3    2.10 ( +5 %)  .53 ( +6 %)   14  2.20 (+10 %)  .46 ( -8 %)   134  2.30 (+15 %)  .50 (  0 %)
    4    2.40 (+20 %)  .44 (-12 %)   23  2.60 (+30 %)  .51 ( +2 %)   234  2.90 (+45 %)  .40 (-20 %)
                                     24  2.70 (+35 %)  .47 ( -6 %)
                                     34  2.50 (+25 %)  .48 ( -4 %)
"""

from __future__ import annotations

import itertools

import pytest

from specdec_core.config.search import SearchConfig
from specdec_core.errors import ConfigError, EvaluationFailedError
from specdec_core.search.outcome import Failure, Loss, Score
from specdec_core.search.sleb import SlebSearch
from specdec_core.search.step_model import StepTimeModel
from specdec_core.search.strategies import make_strategy
from specdec_core.search.strategy import Strategy
from specdec_core.skip import SkipConfig
from tests.unit.search.test_tss_example import TABLE, UNITS, names

NUM_LAYERS = 6

# Losses by hand: 2 is the cheapest single one; 23 and 24 tie; 234 is cheaper than 123.
LOSSES = {
    "1": 3.0,
    "2": 2.5,
    "3": 2.7,
    "4": 2.6,
    "1,2": 3.2,
    "2,3": 2.9,
    "2,4": 2.9,
    "1,2,3": 3.5,
    "2,3,4": 3.4,
}

# Six layers of 1 + 1 bytes and 8 of head: leaving a block out saves a tenth of a step of 1 s.
TENTHS = StepTimeModel((1,), (1.0,), (1.0,) * NUM_LAYERS, (1.0,) * NUM_LAYERS, 8.0)


def make(strategy: str, **changes: object) -> Strategy:
    values = {"domain": "qa", "strategy": strategy, "beam": 2, "depth": 3, "tolerance": -0.05}
    config = SearchConfig.model_validate(values | changes)
    return make_strategy(config, UNITS, num_layers=NUM_LAYERS, step_model=TENTHS)


def run(search: Strategy) -> list[str]:
    """Answer everything pending from the tables; return what was asked, losses in brackets."""
    asked = []
    while not search.is_finished:
        for skip in search.pending():
            if search.kind_of(skip) == "loss":
                asked.append(f"[{skip}]")
                search.tell(skip, Loss(LOSSES[str(skip)]))
            else:
                asked.append(str(skip))
                search.tell(skip, Score(*TABLE[str(skip)]))
    return asked


def test_accept_only_level_by_level() -> None:
    search = make("accept-only")
    asked = run(search)
    outcome = search.outcome()
    first, second, third = outcome.levels
    # By acceptance alone: 4, 2, 3 within -5 %, 1 below it. The metric of 4 does not matter.
    assert names(first.members) == ["4", "2", "3", "1"]
    assert [m.is_feasible for m in first.members] == [True, True, True, False]
    # 4 and 2 extended: 14, 24, 34 and 12, 23, 24; 13 is never built.
    assert names(second.members) == ["2,4", "2,3", "3,4", "1,4", "1,2"]
    assert names(third.members) == ["2,3,4", "1,2,4", "1,2,3"]
    assert str(outcome.answer.skip) == "2,3,4"
    assert outcome.answer.gain == pytest.approx(0.45)
    assert outcome.answer.gain_metric == pytest.approx(-0.20)
    assert outcome.evaluated == 12
    assert "1,3" not in asked


def test_metric_only_level_by_level() -> None:
    search = make("metric-only")
    asked = run(search)
    outcome = search.outcome()
    first, second, third = outcome.levels
    assert names(first.members) == ["3", "1", "2", "4"]
    # 3 and 1 extended: 13, 23, 34 and 12, 13, 14; 14 is the only one below -5 %.
    assert names(second.members) == ["1,3", "2,3", "1,2", "3,4", "1,4"]
    assert [m.is_feasible for m in second.members] == [True, True, True, True, False]
    # 13 and 23 extended: 123, 134 and 123, 234.
    assert names(third.members) == ["1,2,3", "1,3,4", "2,3,4"]
    # 13 has +10 % and 123 only +8 %.
    assert str(outcome.answer.skip) == "1,3"
    assert outcome.evaluated == 12
    assert "2,4" not in asked


def test_throughput_level_by_level() -> None:
    search = make("throughput")
    run(search)
    outcome = search.outcome()
    first, second, third = outcome.levels
    # Speed is acceptance over 0.9 s: 1.15/.9, 1.05/.9, .9/.9; 4 would be 1.33 but loses 12 %.
    assert names(first.members) == ["2", "3", "1", "4"]
    gains = [member.gain for member in first.members]
    assert gains == pytest.approx([1.15 / 0.9 - 1, 1.05 / 0.9 - 1, 0.0, 1.2 / 0.9 - 1])
    # Over 0.8 s: 23 1.625, 34 1.5625, 12 1.25, 13 1.21875; 24 (1.6875) is 1 % below tolerance.
    assert names(second.members) == ["2,3", "3,4", "1,2", "1,3", "2,4"]
    # 23 and 34 extended: 123 1.2/.7 = 1.714, 134 1.15/.7 = 1.643; 234 loses 20 % of the metric.
    assert names(third.members) == ["1,2,3", "1,3,4", "2,3,4"]
    # TSS stops at 23; the saved step time is worth more here.
    assert str(outcome.answer.skip) == "1,2,3"
    assert outcome.answer.gain == pytest.approx(1.2 / 0.7 - 1)
    assert outcome.evaluated == 12


def test_throughput_pays_for_larger_trees() -> None:
    model = StepTimeModel((1, 5), (1.0, 2.0), (1.0,) * 6, (1.0,) * 6, 8.0)
    config = SearchConfig(domain="qa", strategy="throughput", depth=1, tolerance=-1.0)
    search = make_strategy(config, UNITS, num_layers=NUM_LAYERS, step_model=model)
    search.tell(SkipConfig(), Score(2.0, 0.5, nodes=1.0))
    # 1: twice the acceptance, but steps of 5 nodes: 2.0 / (2.0 * 0.9); 2: 1.5 / 0.9.
    scores = {"1": Score(4.0, 0.5, 5.0), "2": Score(3.0, 0.5), "3": Score(1, 0.5), "4": Score(1, 1)}
    for name, score in scores.items():
        search.tell(SkipConfig.parse(name), score)
    assert str(search.outcome().answer.skip) == "2"


def test_sleb_takes_the_lowest_loss_of_every_level() -> None:
    search = make("sleb", tolerance=1.0)
    asked = run(search)
    # All of level 1, then the sets with 2, then those with 23 (24 ties and is later in order).
    assert asked == [
        *("", "[1]", "[2]", "[3]", "[4]"),
        *("[1,2]", "[2,3]", "[2,4]"),
        *("[1,2,3]", "[2,3,4]"),
        "2,3,4",
    ]
    outcome = search.outcome()
    assert [str(level.losses[0][0]) for level in outcome.levels] == ["2", "2,3", "2,3,4"]
    # Tolerances and the metric, 20 % lower, take no part.
    assert str(outcome.answer.skip) == "2,3,4"
    assert outcome.answer.score == Score(2.9, 0.4)
    assert outcome.evaluated == 4 + 3 + 2 + 1
    assert outcome.stop_reason == "depth reached"


def test_sleb_leaves_out_what_failed_and_falls_back_from_an_answer_that_cannot_be_scored() -> None:
    search = make("sleb", depth=2)
    search.tell(SkipConfig(), Score(2.0, 0.5))
    for name in ("1", "3", "4"):
        search.tell(SkipConfig.parse(name), Loss(LOSSES[name]))
    search.tell(SkipConfig.parse("2"), Failure("poisoned"))
    # Without 2 the lowest is 4.
    assert [str(skip) for skip in search.pending()] == ["1,4", "2,4", "3,4"]
    for number, skip in enumerate(search.pending()):
        search.tell(skip, Loss(1.0 + number))
    assert [str(skip) for skip in search.pending()] == ["1,4"]
    search.tell(SkipConfig.parse("1,4"), Failure("no memory"))
    assert [str(skip) for skip in search.pending()] == ["4"]
    search.tell(SkipConfig.parse("4"), Score(*TABLE["4"]))
    outcome = search.outcome()
    assert str(outcome.answer.skip) == "4"
    assert [(str(skip), reason) for skip, reason in outcome.failed] == [
        ("2", "poisoned"),
        ("1,4", "no memory"),
    ]


def test_sleb_refuses_a_score_where_a_loss_is_asked_and_a_loss_that_is_no_number() -> None:
    search = make("sleb")
    one = SkipConfig.parse("1")
    with pytest.raises(ConfigError, match="the loss of 1 was asked for"):
        search.tell(one, Score(2.0, 0.5))
    with pytest.raises(ConfigError, match="the loss of 1 is not a number"):
        search.tell(one, Loss(float("inf")))
    with pytest.raises(ConfigError, match="a score of dense was asked for"):
        search.tell(SkipConfig(), Loss(1.0))
    search.tell(one, Loss(3.0))
    search.tell(one, Loss(3.0))
    with pytest.raises(ConfigError, match="not part of this search"):
        search.tell(SkipConfig.parse("1,2"), Loss(1.0))
    with pytest.raises(ConfigError, match="not finished"):
        search.outcome()


def test_sleb_with_every_loss_failed_keeps_dense() -> None:
    search = SlebSearch(UNITS, depth=2)
    for skip in search.pending():
        search.tell(skip, Failure("no") if skip.units else Score(2.0, 0.5))
    assert search.outcome().answer.skip == SkipConfig()
    assert search.outcome().stop_reason == "nothing left to expand"


@pytest.mark.parametrize(
    ("weight", "asked", "answer", "reason"),
    [
        # A layer is worth 5 %: 4 loses 12 % and stays; 3 gives .06 + .05 = .11; 23 .02 + .10 = .12;
        # 123 .08 + .15 = .23: taken, and the budget is used up.
        (0.3, ["", "4", "3", "2,3", "1,2,3"], "1,2,3", "depth reached"),
        # Worth nothing: 3 gives .06, 23 only .02, 13 gives .10.
        (0.0, ["", "4", "3", "2,3", "1,3"], "1,3", "nothing left to expand"),
        # Worth 1/6: 4 gives .047, 34 .293, 234 -.20 + .50 = .30: all taken from the end.
        (1.0, ["", "4", "3,4", "2,3,4"], "2,3,4", "depth reached"),
    ],
)
def test_gm_skip_goes_from_late_to_early(
    weight: float, asked: list[str], answer: str, reason: str
) -> None:
    search = make("gm-skip", sparsity_weight=weight)
    assert run(search) == asked
    outcome = search.outcome()
    assert str(outcome.answer.skip) == answer
    assert outcome.stop_reason == reason
    assert outcome.evaluated == len(asked) - 1


def test_gm_skip_asks_one_at_a_time_and_passes_over_failures() -> None:
    search = make("gm-skip", sparsity_weight=1.0)
    assert [str(skip) for skip in search.pending()] == ["", "4"]
    search.tell(SkipConfig.parse("4"), Failure("poisoned"))
    search.tell(SkipConfig(), Score(2.0, 0.5))
    assert [str(skip) for skip in search.pending()] == ["3"]


@pytest.mark.parametrize("strategy", ["sleb", "gm-skip", "random", "throughput", "accept-only"])
def test_a_failed_dense_target_ends_every_strategy(strategy: str) -> None:
    with pytest.raises(EvaluationFailedError, match="dense target could not be evaluated"):
        make(strategy).tell(SkipConfig(), Failure("cuda"))


def test_throughput_without_step_times_is_refused() -> None:
    config = SearchConfig(domain="qa", strategy="throughput")
    with pytest.raises(ConfigError, match="needs measured step times"):
        make_strategy(config, UNITS, num_layers=NUM_LAYERS)


def test_every_strategy_asks_for_dense_first_and_nothing_twice() -> None:
    for strategy, tolerance in itertools.product(
        ("tss", "sleb", "gm-skip", "random", "accept-only", "metric-only", "throughput"),
        (0.05, -0.05, -1.0),
    ):
        search = make(strategy, tolerance=tolerance)
        asked = run(search)
        assert asked[0] == ""
        assert len(asked) == len(set(asked))
        assert search.pending() == ()
