"""The learning rate at its joints."""

import itertools
import math

import pytest

from specdec_core.training.schedule import learning_rate, num_warmup_steps


def rates(num_steps: int, num_warmup: int, peak: float = 1.0) -> list[float]:
    return [
        learning_rate(step, peak=peak, num_steps=num_steps, num_warmup=num_warmup)
        for step in range(num_steps)
    ]


def test_twenty_steps_rise_to_the_peak_once_and_fall_to_almost_nothing() -> None:
    got = rates(20, 4)
    assert got[:4] == [0.25, 0.5, 0.75, 1.0]
    # From the peak in step 3, 17 steps to zero in step 20, which is not taken.
    expected = [0.5 * (1 + math.cos(math.pi * passed / 17)) for passed in range(1, 17)]
    assert got[4:] == pytest.approx(expected, abs=1e-15)
    assert max(got) == 1.0
    assert got.index(1.0) == 3
    assert all(now > after for now, after in itertools.pairwise(got[3:]))
    assert 0.0 < got[-1] < 0.01


def test_half_way_down_is_half_the_peak() -> None:
    # Peak at step 0, zero at step 8: step 4 lies in the middle.
    assert rates(8, 0, peak=3e-4)[4] == pytest.approx(1.5e-4)


@pytest.mark.parametrize("num_warmup", [0, 1])
def test_without_a_rise_the_first_step_has_the_peak(num_warmup: int) -> None:
    assert rates(5, num_warmup)[0] == 1.0


def test_a_training_of_rise_alone_ends_at_the_peak() -> None:
    assert rates(3, 3) == [1 / 3, 2 / 3, 1.0]


@pytest.mark.parametrize(
    ("num_steps", "warmup", "expected"), [(100, 0.03, 3), (20, 0.03, 1), (20, 0.0, 0), (1, 0.9, 1)]
)
def test_the_share_of_warm_up_is_rounded_up(num_steps: int, warmup: float, expected: int) -> None:
    assert num_warmup_steps(num_steps, warmup) == expected


@pytest.mark.parametrize("step", [-1, 5])
def test_a_step_outside_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match=f"step {step} is not one of 5"):
        learning_rate(step, peak=1.0, num_steps=5, num_warmup=0)
