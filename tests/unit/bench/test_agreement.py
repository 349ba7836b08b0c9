"""Agreement of two outputs by hand."""

from __future__ import annotations

import pytest

from specdec_core.bench.agreement import agreement, common_length


@pytest.mark.parametrize(
    ("dense", "sparse", "length", "share"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 4), 4, 1.0),
        ((1, 2, 3, 4), (5, 6), 0, 0.0),
        # One token replaced in the middle: 1, 2 and 4 stay, 2 * 3 / 8.
        ((1, 2, 3, 4), (1, 2, 9, 4), 3, 0.75),
        # The first token differs and the rest is the same: no common beginning, 2 * 3 / 8.
        ((1, 2, 3, 4), (9, 2, 3, 4), 3, 0.75),
        # One token put in front shifts all others: 2 * 4 / 9.
        ((1, 2, 3, 4), (9, 1, 2, 3, 4), 4, 8 / 9),
        # Stopped half way: all of the short one, half of the long one, 2 * 2 / 6.
        ((1, 2, 3, 4), (1, 2), 2, 2 / 3),
        # A repetition counts once for each time that dense has it: 2 * 2 / 8.
        ((1, 2, 1, 3), (1, 1, 1, 1), 2, 0.5),
        # Order counts: of 1 2 and 2 1 only one token is in order.
        ((1, 2), (2, 1), 1, 0.5),
        ((), (1,), 0, 0.0),
        ((), (), 0, 1.0),
    ],
)
def test_agreement_by_hand(
    dense: tuple[int, ...], sparse: tuple[int, ...], length: int, share: float
) -> None:
    assert common_length(dense, sparse) == length
    assert agreement(dense, sparse) == pytest.approx(share)
