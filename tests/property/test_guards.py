"""The fast repeat search against a plain one."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.data.guards import longest_repeat


def _plain(tokens: list[int]) -> int:
    for length in range(len(tokens) - 1, 0, -1):
        windows = [tuple(tokens[i : i + length]) for i in range(len(tokens) - length + 1)]
        if len(set(windows)) < len(windows):
            return length
    return 0


@given(st.lists(st.integers(0, 3), max_size=40))
def test_longest_repeat_equals_the_plain_search(tokens):
    assert longest_repeat(tokens) == _plain(tokens)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=20), st.integers(0, 5))
def test_text_said_twice_repeats_at_least_once_its_length(tokens, gap):
    assert longest_repeat([*tokens, *range(-gap, 0), *tokens]) >= len(tokens)
