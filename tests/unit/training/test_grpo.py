"""GRPO on acceptance length: a worked example, placements of groups, and nothing to learn."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.grpo import (
    advantages,
    count_groups,
    draw_anchors,
    group_rewards,
    grpo_loss,
)
from specdec_core.training.losses.bounded import bounded_loss
from specdec_core.training.losses.eager import eager_loss
from tests.unit.training.loss_cases import generators, losses, make_batch

LABELS = torch.tensor([3, 1, 4, 1, 5, 9])
DRAFT = torch.tensor([3, 1, 4, 2, 5, 9])
REFERENCE = torch.tensor([3, 0, 4, 2, 5, 8])
LOG_PI = torch.tensor([-0.1, -0.2, -0.3, -1.0, -0.4, -0.2], dtype=torch.float64)
LOG_REFERENCE = torch.tensor([-0.2, -0.9, -0.3, -0.9, -0.5, -0.6], dtype=torch.float64)
FOUR = losses("grpo", gamma=3, grpo_windows=4)
ANCHOR = torch.tensor([[0, 0]])


def one(values):
    return values.reshape(1, 1, -1)


def worked_rewards():
    return group_rewards(one(DRAFT == LABELS), one(REFERENCE == LABELS), ANCHOR, FOUR)


def test_rewards_of_the_worked_example():
    # Accepted of the draft 3, 2, 1, 0; of the reference 1, 0, 1, 0.
    assert worked_rewards().tolist() == [[2.0, 2.0, 0.0, 0.0]]


def test_advantages_of_the_worked_example():
    expected = 1.0 / (1.0 + 1e-6)
    found = advantages(worked_rewards(), 3.0)[0].tolist()
    assert found == pytest.approx([expected, expected, -expected, -expected], abs=1e-12)


def test_advantages_are_clipped():
    rewards = torch.tensor([[0.0] * 20 + [7.0]], dtype=torch.float64)
    assert float(advantages(rewards, 10.0).max()) == pytest.approx(math.sqrt(20), rel=1e-4)
    assert float(advantages(rewards, 3.0).max()) == 3.0


def test_loss_of_the_worked_example():
    found = grpo_loss(one(LOG_PI), one(LOG_REFERENCE), worked_rewards(), ANCHOR, FOUR)
    # Objective 1.2, 1.2, -1, -1.142631 at advantages of plus and minus 1.
    assert float(found) == pytest.approx(-0.064342, abs=1e-6)


def test_gradient_of_the_worked_example_leaves_clipped_windows_out():
    log_pi = one(LOG_PI).clone().requires_grad_()
    grpo_loss(log_pi, one(LOG_REFERENCE), worked_rewards(), ANCHOR, FOUR).backward()
    # Windows 0 and 1 are clipped; 2 and 3 have ratio 1 and exp(0.4 / 3), advantage -1, mean of 4,
    # and a third of each log-ratio per position.
    third = 1.0 / (1.0 + 1e-6) / 4 / 3
    late = math.exp(0.4 / 3)
    expected = [0.0, 0.0, 1.0, 1.0 + late, 1.0 + late, late]
    assert log_pi.grad[0, 0].tolist() == pytest.approx([third * e for e in expected], abs=1e-9)


def spoken(tokens, logs, others):
    """Log-probabilities of ten tokens, which for `tokens` are `logs`; 7 has none.

    Most of the rest is that of one of `others` where it is given.
    """
    rows = torch.empty(len(tokens), 10, dtype=torch.float64)
    for row, token, log, other in zip(rows, tokens, logs, others, strict=True):
        rest = 1.0 - math.exp(log)
        row[:] = math.log(rest / 8 if other is None else rest / 70)
        row[7] = -1e3
        row[token] = log
        if other is not None:
            row[other] = math.log(rest * 0.9)
    return rows


# The last one of the worked example leaves no room for another token that is likelier.
LOG_SPOKEN = [-0.2, -0.9, -0.3, -0.9, -0.5, -0.8]


@pytest.mark.parametrize("form", [eager_loss, bounded_loss])
@pytest.mark.parametrize("ids", [None, [9, 8, 6, 5, 4, 3, 2, 1, 0]])
def test_drafts_are_verified_by_the_targets_choice_where_the_response_was_sampled(form, ids):
    """The worked example on a response of sevens, which neither target nor draft would choose."""
    draft = spoken(DRAFT, LOG_PI, [None] * 6)
    before = spoken(DRAFT, LOG_SPOKEN, [None, 0, None, None, None, 8])
    target = spoken(LABELS, [-0.5] * 6, [None] * 6)
    assert draft.argmax(-1).tolist() == DRAFT.tolist()
    assert before.argmax(-1).tolist() == REFERENCE.tolist()
    states = [torch.cat([rows, torch.zeros(1, 10)])[None] for rows in (draft, before, target)]
    batch = make_batch(spans=[[(1, 7)]], length=7, vocab=10)
    batch = replace(batch, input_ids=torch.full((1, 7), 7), hidden=states[2])
    everything = torch.eye(10, dtype=torch.float64)
    # A draft without token 7 that numbers the others backwards.
    own = Head(everything) if ids is None else Head(everything[ids], target_ids=torch.tensor(ids))
    found = form(
        losses("grpo", gamma=3, grpo_windows=4, grpo_groups=1),
        batch,
        [DraftPass(states[0].requires_grad_(), own)],
        Head(everything),
        reference=[DraftPass(states[1], own)],
        generators=generators(batch),
    )
    # Mean log-ratios .8/3, .6/3, 0 and .6/3; rewards 2, 2, 0, 0: objective 1.2, 1.2, -1, -e^.2.
    assert float(found.loss.detach()) == pytest.approx((math.exp(0.2) - 1.4) / 4, abs=1e-6)
    assert float(found.counts.groups) == 1.0


def test_the_reference_itself_learns_nothing():
    matches = one(REFERENCE == LABELS)
    rewards = group_rewards(matches, matches, ANCHOR, FOUR)
    assert not rewards.any()
    log_pi = one(LOG_REFERENCE).clone().requires_grad_()
    found = grpo_loss(log_pi, one(LOG_REFERENCE), rewards, ANCHOR, FOUR)
    found.backward()
    assert float(found.detach()) == 0.0
    assert not log_pi.grad.any()


def test_a_group_with_equal_rewards_has_no_gradient():
    log_pi = one(LOG_PI).clone().requires_grad_()
    rewards = torch.full((1, 4), 3.0, dtype=torch.float64)
    grpo_loss(log_pi, one(LOG_REFERENCE), rewards, ANCHOR, FOUR).backward()
    assert not log_pi.grad.any()


def test_finite_differences():
    rewards = torch.tensor([[2.0, -1.0, 0.0, 1.0]], dtype=torch.float64)
    log_pi = one(LOG_PI).clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: grpo_loss(x, one(LOG_REFERENCE), rewards, ANCHOR, FOUR), (log_pi,)
    )


def windows_of(num_positions, before=0, config=None):
    """Windows of one response of `num_positions` that begins `before` tokens into the sequence."""
    num_windows = max(num_positions - config.gamma + 1, 0)
    valid = torch.zeros(1, before + num_positions, dtype=torch.bool)
    valid[0, before : before + num_windows] = True
    return valid


def test_two_groups_in_the_least_room_have_one_placement():
    config = losses("grpo", gamma=7, grpo_windows=8, grpo_groups=2)
    for seed in range(5):
        found = draw_anchors(windows_of(28, 3, config), config, [np.random.default_rng(seed)])
        assert found.tolist() == [[0, 3], [0, 17]]


def test_too_short_responses_have_fewer_groups():
    config = losses("grpo", gamma=7, grpo_windows=8, grpo_groups=4)
    for num_positions, expected in {13: 0, 14: 1, 27: 1, 28: 2, 55: 3, 56: 4, 99: 4}.items():
        valid = windows_of(num_positions, 2, config)
        found = draw_anchors(valid, config, [np.random.default_rng(0)])
        assert count_groups(valid, config) == len(found) == expected


def test_all_placements_without_overlap_are_drawn_equally_often():
    config = losses("grpo", gamma=2, grpo_windows=2, grpo_groups=2)  # groups of 3 positions
    generator = np.random.default_rng(5)
    valid = windows_of(8, 1, config)
    seen = {}
    for _ in range(600):
        first, second = (int(p) for _, p in draw_anchors(valid, config, [generator]))
        seen[first, second] = seen.get((first, second), 0) + 1
    places = {(a, b) for a in range(1, 7) for b in range(a + 3, 7)}
    assert set(seen) == places
    # Six placements, 100 each expected; chi-square with 5 degrees of freedom, 0.1 % point 20.5.
    assert sum((n - 100.0) ** 2 / 100.0 for n in seen.values()) < 20.5


def test_every_turn_of_a_dialogue_has_groups_of_its_own():
    config = losses("grpo", gamma=2, grpo_windows=2, grpo_groups=1)
    valid = torch.tensor([[False, True, True, False, False, True, True, False]])
    found = draw_anchors(valid, config, [np.random.default_rng(0)])
    assert found.tolist() == [[0, 1], [0, 5]]


def test_draws_of_a_sequence_do_not_depend_on_the_batch():
    config = losses("grpo", gamma=2, grpo_windows=2, grpo_groups=2)
    valid = torch.cat([windows_of(40, 0, config)] * 3)
    valid[1, 30:] = False
    whole = draw_anchors(valid, config, [np.random.default_rng(row) for row in range(3)])
    for row in range(3):
        alone = draw_anchors(valid[row : row + 1], config, [np.random.default_rng(row)])
        assert whole[whole[:, 0] == row, 1].tolist() == alone[:, 1].tolist()
