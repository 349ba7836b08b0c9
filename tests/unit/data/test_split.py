"""The selection / held-out rule."""

import pytest

from specdec_core.data.split import sample_ids, split
from specdec_core.data.suites import Suite, SuiteItem
from specdec_core.errors import DataError


def _suite(num_scored: int, num_unscored: int = 0) -> Suite:
    items = [
        SuiteItem(f"i{n:02d}", "qa", ("q",), ("a",), "f1" if n < num_scored else None)
        for n in range(num_scored + num_unscored)
    ]
    return Suite.of("small", "qa", items, "memory")


def test_drawn_ids_are_those_of_the_seeded_shuffle():
    # random.Random(42).shuffle of [0, 1, 2, 3, 4, 5] gives [3, 1, 2, 4, 0, 5] (CPython).
    drawn = split(_suite(6), 2, 3)
    assert drawn.selection_ids == ("i03", "i01")
    assert drawn.heldout_ids == ("i02", "i04", "i00")


def test_order_of_the_file_does_not_matter():
    suite = _suite(20)
    turned = Suite.of("turned", "qa", reversed(suite.items), "memory")
    assert split(suite, 5, 10) == split(turned, 5, 10)


def test_an_item_given_twice_would_be_in_both_parts_and_is_refused():
    with pytest.raises(DataError, match="'twice' has two items 'i00': ids must be unique"):
        Suite.of("twice", "qa", [*_suite(3).items, _suite(1).items[0]], "twice")


def test_other_seed_draws_other_items():
    suite = _suite(40)
    assert split(suite, 8, 8, seed=1).selection_ids != split(suite, 8, 8, seed=2).selection_ids


def test_parts_are_disjoint_and_held_out_takes_what_is_left():
    drawn = split(_suite(10), 4, 64)
    assert len(drawn.selection_ids) == 4
    assert len(drawn.heldout_ids) == 6
    assert not set(drawn.selection_ids) & set(drawn.heldout_ids)


def test_items_without_reference_are_left_out_and_counted():
    drawn = split(_suite(6, 4), 2, 64)
    assert drawn.num_unscored == 4
    assert {*drawn.selection_ids, *drawn.heldout_ids} == {f"i0{n}" for n in range(6)}


def test_suite_without_metric_uses_every_item():
    drawn = split(_suite(0, 5), 2, 3)
    assert drawn.num_unscored == 0
    assert len(drawn.heldout_ids) == 3


def test_too_few_items_says_how_many_there_are():
    assert split(_suite(6), 4, 64).heldout_ids
    reason = r"'small' has 6 usable items \(3 more have no reference\), but 5 selection items"
    with pytest.raises(DataError, match=reason):
        split(_suite(6, 3), 5, 64)


@pytest.mark.parametrize(("num_selection", "num_heldout"), [(0, 2), (1, 1)])
def test_parts_that_are_too_small_are_refused(num_selection, num_heldout):
    with pytest.raises(DataError, match="needs at least 1 and 2"):
        split(_suite(9), num_selection, num_heldout)


def test_a_sample_mixes_neighbours_and_grows_without_losing_items():
    suite = _suite(40)
    drawn = sample_ids(suite, 10)
    assert sample_ids(suite, 20)[:10] == drawn
    assert sorted(drawn) != [f"i{n:02d}" for n in range(10)]
    turned = Suite.of("turned", "qa", reversed(suite.items), "memory")
    assert sample_ids(turned, 10) == drawn
    with pytest.raises(DataError, match="'small' has 40 items, 41 were asked for"):
        sample_ids(suite, 41)
