"""Agreement against a slow reference, and what any measure of sameness must keep."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.bench.agreement import agreement, common_length

outputs = st.lists(st.integers(0, 4), max_size=12)


def slow_length(first: list[int], second: list[int]) -> int:
    """The recursion of the definition, row by row."""
    above = [0] * (len(second) + 1)
    for token in first:
        row = [0]
        for place, other in enumerate(second):
            row.append(above[place] + 1 if token == other else max(above[place + 1], row[place]))
        above = row
    return above[-1]


@given(outputs, outputs)
def test_the_bits_count_what_the_recursion_counts(first: list[int], second: list[int]) -> None:
    assert common_length(first, second) == slow_length(first, second)


@given(outputs, outputs)
def test_it_is_symmetric_between_0_and_1_and_1_for_equal_outputs_alone(
    first: list[int], second: list[int]
) -> None:
    found = agreement(first, second)
    assert 0.0 <= found <= 1.0
    assert found == agreement(second, first)
    assert (found == 1.0) == (first == second)
