"""Random skip sets: different, uniform, by the seed alone, and their spread."""

from __future__ import annotations

import statistics

import pytest

from specdec_core.config.search import SearchConfig
from specdec_core.search.random_draws import draw_sets
from specdec_core.search.strategies import make_strategy
from specdec_core.skip import SkipConfig, SkipUnit
from tests.unit.search.test_strategies import make, run
from tests.unit.search.test_tss_example import TABLE, UNITS


def test_random_draws_are_different_sets_of_each_size_and_depend_on_the_seed_alone() -> None:
    units = tuple(SkipUnit(layer) for layer in range(1, 11))
    for size in (1, 3):
        drawn = draw_sets(units, size, 6, seed=42)
        assert len(set(drawn)) == 6
        assert all(len(skip) == size for skip in drawn)
        assert drawn == draw_sets(units, size, 6, seed=42)
        assert drawn != draw_sets(units, size, 6, seed=43)
    assert draw_sets(units, 3, 5, seed=42) == draw_sets(units, 3, 6, seed=42)[:5]
    # A space with fewer sets gives all of them, without many shuffles in vain.
    assert set(draw_sets(units, 1, 1000, seed=42)) == {SkipConfig.of([unit]) for unit in units}


def test_random_draws_are_uniform() -> None:
    """Of the 6 pairs of 4 units each comes first in a sixth of 600 seeds: 100 +- 5 sigma of 9."""
    pairs = ["1,2", "1,3", "1,4", "2,3", "2,4", "3,4"]
    first = [str(draw_sets(UNITS, 2, 5, seed)[0]) for seed in range(600)]
    assert all(abs(first.count(pair) - 100) < 46 for pair in pairs)


def test_random_reports_spread_and_answers_with_the_median_draw() -> None:
    search = make("random", depth=2)
    asked = run(search)
    # Four single units are all there are; five of the six pairs.
    assert sorted(s for s in asked if len(s) == 1) == ["1", "2", "3", "4"]
    pairs = [name for name in asked if len(name) == 3]
    assert len(set(pairs)) == 5
    outcome = search.outcome()
    single, double = outcome.draws
    assert (single.num_draws, double.num_draws) == (4, 5)
    assert single.acceptance_mean == pytest.approx((1.8 + 2.3 + 2.1 + 2.4) / 4)
    metrics = [TABLE[name][1] for name in pairs]
    assert double.metric_mean == pytest.approx(statistics.mean(metrics))
    assert double.metric_sd == pytest.approx(statistics.stdev(metrics))
    summed = {name: TABLE[name][0] / 2.0 + TABLE[name][1] / 0.5 for name in pairs}
    median = sorted(pairs, key=lambda name: (round(summed[name], 9), name))[2]
    assert str(outcome.answer.skip) == median


def test_random_with_mixed_units_draws_no_set_twice() -> None:
    units = SkipConfig.parse("a1,a2").units + SkipConfig.parse("m1,m2").units
    units += SkipConfig.parse("1,2").units
    config = SearchConfig(domain="qa", strategy="random", depth=2)
    search = make_strategy(config, units, num_layers=4)
    asked = [str(skip) for skip in search.pending()]
    assert len(asked) == len(set(asked))
