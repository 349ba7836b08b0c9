"""Prescribed acceptance: what is asked for is what is measured."""

import math

import pytest

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.model_drafters import Synthetic
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DraftBudget, DrafterContext, generate, make_drafter
from tests.doubles import random_view


def run(view, config, prompt, seed, num=60, sampling=None):
    sampling = sampling or Sampling()
    context = DrafterContext(view=view, sampling=sampling)
    (result,) = generate(
        view,
        [prompt],
        [make_drafter(config, context)],
        max_new_tokens=num,
        eos_ids=(),
        sampling=sampling,
        seeds=[seed],
    )
    return result


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=2)])
def test_measured_acceptance_lies_in_its_binomial_interval(sampling):
    """Conditional acceptance per position over 60 requests, four standard deviations wide."""
    wanted = (0.8, 0.5, 0.9)
    config = Synthetic(acceptance=wanted, horizon=60)
    tried, kept = [0, 0, 0], [0, 0, 0]
    for seed in range(60):
        trace = run(random_view(seed), config, [1, seed % 8], seed, sampling=sampling).trace
        for depth, accepted in zip(trace.depth, trace.accepted, strict=True):
            if depth < 3:
                continue  # cut at the end of the output
            for position in range(min(depth, accepted + 1)):
                tried[position] += 1
                kept[position] += accepted > position
    for chance, num, right in zip(wanted, tried, kept, strict=True):
        assert num > 300
        assert abs(right - chance * num) < 4 * math.sqrt(num * chance * (1 - chance))


def test_the_output_is_the_targets_and_depends_on_nothing_else():
    view = random_view(3)
    plain = run(view, NoDrafter(), [1, 2], 5)
    for acceptance in ((1.0,) * 8, (0.0,) * 8, (0.5, 0.5)):
        assert run(view, Synthetic(acceptance=acceptance), [1, 2], 5).token_ids == plain.token_ids
    sure = run(view, Synthetic(acceptance=(1.0,) * 4), [1, 2], 5)
    assert sure.trace.accepted == sure.trace.depth
    wrong = run(view, Synthetic(acceptance=(0.0,) * 4), [1, 2], 5)
    assert sum(wrong.trace.accepted) == 0
    assert sum(wrong.trace.drafted) > 100  # it costs as much all the same


def test_other_seeds_go_wrong_elsewhere_and_the_same_seed_does_not():
    view, config = random_view(4), Synthetic(acceptance=(0.5,) * 4)
    traces = [run(view, config, [1], seed).trace for seed in (1, 1, 2)]
    assert traces[0] == traces[1] != traces[2]


def test_behind_the_horizon_the_target_drafts_for_itself():
    view = random_view(5)
    plain = run(view, NoDrafter(), [1, 2], 0)
    for horizon in (0, 1, 30):
        config = Synthetic(acceptance=(1.0,) * 4, horizon=horizon)
        result = run(view, config, [1, 2], 0)
        assert result.token_ids == plain.token_ids
        assert result.trace.accepted == result.trace.depth
        assert set(result.trace.depth[:-1]) == {4}


@pytest.mark.parametrize("horizon", [0, 2])
def test_a_stop_token_that_ends_the_prompt_ends_nothing(horizon):
    view, stop = random_view(5), 2
    config = Synthetic(acceptance=(1.0,) * 3, horizon=horizon)
    drafter = make_drafter(config, DrafterContext(view=view, eos_ids=frozenset({stop})))
    drafter.reset([1, stop])
    plain = run(view, NoDrafter(), [1, stop], 0, num=4).token_ids
    assert stop not in plain
    first, *expected = plain
    cache = view.new_cache(1, 32)
    view.prefill([[1, stop]], cache)
    drafter.borrow(cache)
    tree = drafter.propose([1, stop, first], DraftBudget(64, 64)).candidates
    assert tree.tokens == (first, *expected)


def test_an_output_that_left_the_known_one_is_followed():
    """As where rounding decides otherwise: the drafts are those after what was really written."""
    view = random_view(5)
    drafter = make_drafter(Synthetic(acceptance=(1.0,) * 3), DrafterContext(view=view))
    drafter.reset([1, 2])
    (known,) = run(view, NoDrafter(), [1, 2], 0, num=1).token_ids
    other = (known + 1) % 8
    cache = view.new_cache(1, 32)
    view.prefill([[1, 2]], cache)
    drafter.borrow(cache)
    tree = drafter.propose([1, 2, other], DraftBudget(64, 64)).candidates
    assert tree.tokens == (other, *run(view, NoDrafter(), [1, 2, other], 0, num=3).token_ids)


def test_it_says_that_it_is_no_method():
    assert Synthetic().is_synthetic
    assert not NoDrafter().is_synthetic
