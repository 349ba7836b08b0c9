"""What benchmarks share: the order of methods."""

from collections import Counter

from benchmarks.common import order_of


def test_methods_change_places_and_neighbours() -> None:
    # By hand: rotated by 0, 1, 2, 0, .., and backwards for every even request.
    orders = ["".join(order_of("abc", index)) for index in range(6)]
    assert orders == ["cba", "bca", "bac", "abc", "acb", "cab"]
    for place in range(3):
        assert Counter(order[place] for order in orders) == {"a": 2, "b": 2, "c": 2}
