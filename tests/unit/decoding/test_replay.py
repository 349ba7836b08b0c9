"""Replay of known outputs by hand, and what cannot be replayed."""

import pytest

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.decoding import make_drafter, replay
from specdec_core.errors import ConfigError
from specdec_core.records import StepTrace

LIMITS = {"max_new_tokens": 8, "vocab_size": 10}


def test_without_drafts_every_token_after_the_first_is_a_step():
    trace = replay(make_drafter(NoDrafter()), [1], [2, 3, 4], [], **LIMITS)
    assert trace == StepTrace(drafted=(0, 0), depth=(0, 0), accepted=(0, 0), committed=(1, 1))


def test_a_lookup_is_replayed_step_by_step():
    # 1 2 3 1 | 2: then [1 2] was followed by 3 1 2, all right, and 7 is the bonus.
    drafter = make_drafter(PromptLookup(num_tokens=3))
    trace = replay(drafter, [1, 2, 3, 1], [2, 3, 1, 2, 7], [], **LIMITS)
    assert trace == StepTrace(drafted=(3,), depth=(3,), accepted=(3,), committed=(4,))


def test_an_output_that_ends_inside_an_accepted_run_has_no_bonus_there():
    drafter = make_drafter(PromptLookup(num_tokens=3))
    trace = replay(drafter, [1, 2, 3, 1], [2, 3, 1], [], **LIMITS)
    assert trace == StepTrace(drafted=(3,), depth=(3,), accepted=(2,), committed=(2,))


def test_the_limit_of_the_decode_bounds_the_proposals():
    drafter = make_drafter(PromptLookup(num_tokens=3))
    trace = replay(drafter, [1, 2, 3, 1], [2, 3, 1], [], max_new_tokens=3, vocab_size=10)
    # Two tokens are left, one of which may be drafted.
    assert trace == StepTrace(drafted=(1,), depth=(1,), accepted=(1,), committed=(2,))


def test_recorded_rankings_are_cut_to_what_the_drafter_asks_for():
    drafter = make_drafter(TokenRecycling(top_k=1, num_nodes=2, max_depth=2, update="path"))
    # 5 -> 6 is learned with the prefill, 6 -> 5 in the first step; then 6 5 is drafted after 5.
    rows = [(6, 1), (5, 1), (6, 1), (5, 1)]
    trace = replay(drafter, [5], [6, 5, 6, 5], rows, **LIMITS)
    assert trace == StepTrace(drafted=(0, 2), depth=(0, 2), accepted=(0, 2), committed=(1, 2))


def test_a_drafter_that_learns_from_rejected_nodes_is_refused():
    with pytest.raises(ConfigError, match="learns from more than the committed tokens"):
        replay(make_drafter(TokenRecycling()), [1], [2], [(1,) * 8], **LIMITS)


@pytest.mark.parametrize("rows", [[], [(1, 2)], [(1, 2), (1,)]])
def test_missing_or_short_rankings_are_refused(rows):
    drafter = make_drafter(TokenRecycling(top_k=2, update="path"))
    with pytest.raises(ConfigError, match=r"needs 2 ranked ids .* decode with num_top_k=2"):
        replay(drafter, [1], [2, 3], rows, **LIMITS)


@pytest.mark.parametrize("token_ids", [[], [1] * 9])
def test_an_output_that_does_not_fit_the_limit_is_refused(token_ids):
    with pytest.raises(ConfigError, match="cannot come from a limit of 8"):
        replay(make_drafter(NoDrafter()), [1], token_ids, [], **LIMITS)
