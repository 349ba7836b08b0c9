"""Followers of n-grams, and chances learned from evidence, on examples worked by hand."""

from fractions import Fraction

import pytest

from specdec_core.retrieval.backoff import Chances, FollowerTable


def table_of(text, **options):
    table = FollowerTable(**{"max_ngram": 2, "max_followers": 4, **options})
    for token in text:
        table.append(token)
    return table


def test_longer_suffixes_come_first_and_later_followers_before_earlier_ones():
    # After 1 2 came 3, then 4; after 2 alone came 3, 4 and, last, 5.
    table = table_of([1, 2, 3, 1, 2, 4, 9, 2, 5])
    assert list(table.search((1, 2))) == [
        (4, (2, 0)),
        (3, (2, 1)),
        (5, (1, 0)),
        (4, (1, 1)),
        (3, (1, 2)),
    ]
    assert list(table.search((8, 9))) == [(2, (1, 0))]
    assert list(table.search((8,))) == []


def test_a_follower_seen_again_moves_to_the_front():
    assert [token for token, _ in table_of([1, 2, 1, 3, 1, 2]).search((1,))] == [2, 3]


def test_the_oldest_follower_is_dropped():
    table = table_of([1, 2, 1, 3, 1, 4], max_followers=2)
    assert [token for token, _ in table.search((1,))] == [4, 3]


def test_the_tail_is_the_longest_context():
    table = table_of([1, 2, 3])
    assert table.tail == (2, 3)
    assert table.extend(table.tail, 7) == (3, 7)
    table.clear()
    assert table.tail == ()
    assert list(table.search((2,))) == []


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ((0, 0), Fraction(1, 3)),
        ((0, 1), Fraction(1, 12)),
        ((1, 0), Fraction(1, 2)),
        ((2, 0), Fraction(3, 5)),
        ((2, 2), Fraction(3, 45)),
    ],
)
def test_the_guess_before_anything_is_known(evidence, expected):
    assert Chances().estimate(evidence) == pytest.approx(float(expected))


def test_observations_move_the_guess():
    chances = Chances()
    chances.record([(7, (1, 0)), (8, (1, 1))], 7)
    chances.record([(7, (1, 0))], 9)
    # One right of two, on top of a guess of one half that counts eight: (1 + 4) / (2 + 8).
    assert chances.estimate((1, 0)) == pytest.approx(0.5)
    # None right of one, on a guess of one eighth: 1 / 9.
    assert chances.estimate((1, 1)) == pytest.approx(1 / 9)
    chances.clear()
    assert chances.estimate((1, 1)) == pytest.approx(1 / 8)
