"""The restated decisions of released code, on sequences worked out by hand."""

from benchmarks.released import (
    ReleasedPromptLookup,
    lost_bonus_length,
    released_prompt_lookup_steps,
)
from specdec_core.records import StepTrace

SEQUENCE = [1, 2, 3, 4, 5, 2, 3, 9, 2, 3]


def test_the_earliest_whole_continuation_is_drafted():
    # [2, 3] stands at 1 and at 5; two tokens follow the first, ten follow neither.
    assert ReleasedPromptLookup(3, 2).continuation(SEQUENCE) == [4, 5]
    assert ReleasedPromptLookup(3, 10).continuation(SEQUENCE) == []


def test_steps_commit_what_matched_and_one_more():
    lookup = ReleasedPromptLookup(1, 2)
    # After 7 stands [8, 9]; the output follows it once, then has nothing to look up.
    assert released_prompt_lookup_steps([7, 8, 9, 1, 2, 3, 4], [7, 8, 9, 5, 6], lookup) == [3, 1]


def test_a_full_match_costs_one_more_step_where_its_bonus_is_lost():
    trace = StepTrace(drafted=(4, 4), depth=(4, 4), accepted=(4, 1), committed=(5, 2))
    assert lost_bonus_length(trace, 4) == 7 / 3
