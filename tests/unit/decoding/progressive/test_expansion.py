"""What forest nodes gain: likeliest tokens, and draws that follow the probabilities."""

from collections import Counter

import numpy as np
import pytest

from specdec_core.decoding.progressive.expansion import drawn_choices, first_choices

RANKING, CHANCES = [5, 3, 9, 1], [0.4, 0.2, 0.2, 0.1]


def shares(nucleus):
    num = 20_000
    drawn = drawn_choices(
        [RANKING] * num, [CHANCES] * num, np.random.default_rng(7), nucleus=nucleus
    )
    return {token: count / num for token, count in Counter(drawn).items()}


def test_greedy_takes_the_first():
    assert first_choices([[5, 3], [1]]) == [5, 1]


@pytest.mark.parametrize(
    ("nucleus", "expected"),
    [
        # All four, 0.9 together; one of less probability than the nucleus asks for as well.
        (1.0, {5: 4 / 9, 3: 2 / 9, 9: 2 / 9, 1: 1 / 9}),
        (0.4, {5: 1.0}),
        (0.41, {5: 2 / 3, 3: 1 / 3}),
        (0.7, {5: 1 / 2, 3: 1 / 4, 9: 1 / 4}),
        (0.01, {5: 1.0}),
    ],
)
def test_draws_follow_the_probabilities_inside_the_nucleus(nucleus, expected):
    found = shares(nucleus)
    assert set(found) == set(expected)
    for token, share in expected.items():
        # Four standard deviations of a share of 20000 draws are below 0.0142.
        assert found[token] == pytest.approx(share, abs=0.0142)


def test_the_same_generator_draws_the_same():
    first, second = (
        drawn_choices([RANKING] * 9, [CHANCES] * 9, np.random.default_rng(3)) for _ in range(2)
    )
    assert first == second
    assert drawn_choices([], [], np.random.default_rng(3)) == []
