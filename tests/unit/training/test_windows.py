"""Windows and expected accepted lengths, by hand and against slow loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.training.windows import along_windows, expected_length, reach, valid_windows

ORACLE = torch.tensor([0.9, 0.5, 0.8, 0.4, 1.0], dtype=torch.float64).reshape(1, 1, 5)
ALL = torch.ones(1, 1, 5, dtype=torch.bool)


def slow_length(acceptance, gamma, sequence, start):
    """Expected accepted length of one window, by its definition."""
    total, last = 0.0, acceptance.shape[0] - 1
    for length in range(1, gamma + 1):
        chance = 1.0
        for depth in range(length):
            chance *= float(acceptance[min(depth, last), sequence, start + depth])
        total += chance
    return total


def slow_valid(masks, gamma, sequence, start):
    last, length = masks.shape[0] - 1, masks.shape[2]
    return all(
        start + j < length and bool(masks[min(j, last), sequence, start + j]) for j in range(gamma)
    )


def wtv_loss(acceptance, masks, gamma):
    valid = valid_windows(masks, gamma)
    lengths = expected_length(acceptance, gamma)
    return -torch.where(valid, lengths, 0.0).sum() / valid.sum()


def test_the_worked_example():
    lengths = expected_length(ORACLE, 3)
    assert lengths[0, :3].tolist() == pytest.approx([1.71, 1.06, 1.44])
    assert float(wtv_loss(ORACLE, ALL, 3)) == pytest.approx(-4.21 / 3)
    chances = reach(ORACLE, 3)[:, 0, 0].tolist()
    assert chances == pytest.approx([0.9, 0.45, 0.36])
    exact = [1 - chances[0], chances[0] - chances[1], chances[1] - chances[2], chances[2]]
    assert exact == pytest.approx([0.1, 0.45, 0.09, 0.36])


def test_the_worked_gradient():
    acceptance = ORACLE.clone().requires_grad_()
    wtv_loss(acceptance, ALL, 3).backward()
    expected = [-0.633333, -1.246667, -0.983333, -0.666667, -0.106667]
    assert acceptance.grad[0, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_masked_first_position_takes_its_window_away():
    masks = ALL.clone()
    masks[..., 0] = False
    assert float(wtv_loss(ORACLE, masks, 3)) == pytest.approx(-1.25)


def test_a_window_of_two():
    acceptance = torch.tensor([0.7, 0.6]).double().reshape(1, 1, 2)
    assert float(expected_length(acceptance, 2)[0, 0]) == pytest.approx(1.12)


def test_gradients_are_exact_where_nothing_is_accepted():
    acceptance = torch.tensor([0.5, 0.0, 0.5]).double().reshape(1, 1, 3).requires_grad_()
    expected_length(acceptance, 3)[0, 0].backward()
    # E = a0 + a0 a1 + a0 a1 a2
    assert acceptance.grad[0, 0].tolist() == [1.0, 0.5 + 0.5 * 0.5, 0.0]


def test_windows_end_at_the_sequence_and_do_not_cross_documents():
    masks = torch.ones(1, 1, 6, dtype=torch.bool)
    assert valid_windows(masks, 3)[0].tolist() == [True] * 4 + [False] * 2
    documents = torch.tensor([[0, 0, 0, 1, 1, 1]])
    found = valid_windows(masks, 3, documents)
    assert found[0].tolist() == [True, False, False, True, False, False]
    assert not valid_windows(masks, 7).any()


def test_a_window_meets_one_pass_per_depth_and_the_last_one_from_there_on():
    values = torch.arange(12.0).reshape(2, 1, 6)
    assert along_windows(values, 3)[:, 0, 1].tolist() == [1.0, 8.0, 9.0]
    assert along_windows(values, 3)[:, 0, 5].tolist() == [5.0, 0.0, 0.0]


@settings(max_examples=40, deadline=None)
@given(
    num_passes=st.integers(1, 4),
    length=st.integers(1, 9),
    gamma=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_lengths_and_windows_are_those_of_slow_loops(num_passes, length, gamma, seed):
    generator = torch.Generator().manual_seed(seed)
    acceptance = torch.rand(num_passes, 2, length, generator=generator, dtype=torch.float64)
    masks = torch.rand(num_passes, 2, length, generator=generator) < 0.8
    valid, lengths = valid_windows(masks, gamma), expected_length(acceptance, gamma)
    for sequence in range(2):
        for start in range(length):
            is_valid = slow_valid(masks, gamma, sequence, start)
            assert bool(valid[sequence, start]) == is_valid
            if is_valid:
                slow = slow_length(acceptance, gamma, sequence, start)
                assert float(lengths[sequence, start]) == pytest.approx(slow)
                assert 0.0 <= slow <= gamma
