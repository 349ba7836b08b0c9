"""Acceptance figures against oracles worked out by hand."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.bench.metrics import (
    AcceptanceCounts,
    acceptance_by_output_position,
    count_acceptance,
    mean_request_acceptance_length,
)
from specdec_core.errors import MeasurementError
from specdec_core.records import StepTrace


def trace(accepted, depth, drafted=None, committed=None) -> StepTrace:
    return StepTrace(
        drafted=tuple(drafted or depth),
        depth=tuple(depth),
        accepted=tuple(accepted),
        committed=tuple(committed or [a + 1 for a in accepted]),
    )


FIVE_STEPS = trace([3, 0, 5, 2, 0], [5, 0, 5, 5, 5])


def test_five_steps_by_hand():
    counts = count_acceptance([FIVE_STEPS])
    assert counts.acceptance_length_without_bonus == 2.0
    assert counts.mean_accepted_tokens == 3.0
    assert counts.acceptance_length == 3.0
    assert counts.hit_rate == 0.8
    assert counts.acceptance_length_on_hits == 3.5
    assert counts.decoding_efficiency == pytest.approx(3.0)
    assert counts.num_accepted / counts.num_hits == 2.5
    assert [counts.accepted_quantile(q) for q in (0.5, 0.25, 0.75)] == [2.0, 0.0, 3.0]
    assert counts.num_rejections == 3
    assert counts.token_acceptance_rate == pytest.approx(10 / 13)
    assert counts.offered_depth_acceptance == 0.5
    assert counts.mean_drafted_nodes == 4.0
    assert counts.position_acceptance() == (0.75, 0.75, 0.5, 0.25, 0.25)
    assert counts.position_acceptance_where_drafted() == counts.position_acceptance()
    conditional = (0.75, 1.0, pytest.approx(2 / 3), 0.5, 1.0)
    assert counts.conditional_position_acceptance() == conditional
    # Prefill and five steps wrote 1 + 15 tokens.
    assert counts.num_target_forwards == 6
    assert counts.tokens_per_forward == pytest.approx(16 / 6)


def test_committed_and_accepted_are_both_kept():
    counts = count_acceptance([trace([2, 0, 4], [4, 4, 4])])
    assert (counts.num_accepted, counts.num_committed) == (6, 9)
    assert counts.acceptance_length == 3.0


def test_drafted_nodes_are_those_offered_not_the_maximum():
    counts = count_acceptance([trace([0, 0, 0], [1, 2, 2], drafted=[1, 3, 2])])
    assert counts.num_drafted == 6
    assert counts.offered_node_acceptance == 0.0


def test_a_cut_inside_the_accepted_run_is_neither_bonus_nor_rejection():
    counts = count_acceptance([trace([3, 2], [5, 5], committed=[4, 2])])
    assert counts.num_rejections == 1
    assert counts.acceptance_length == 3.0
    assert counts.mean_accepted_tokens == 3.5


def test_unequal_depths_change_the_share_of_those_that_drafted_a_position():
    counts = count_acceptance([trace([1, 2, 0, 0], [1, 3, 2, 0])])
    assert counts.position_acceptance() == (pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0)
    assert counts.position_acceptance_where_drafted() == (pytest.approx(2 / 3), 0.5, 0.0)
    assert counts.conditional_position_acceptance() == (pytest.approx(2 / 3), 0.5, 0.0)


def test_pooling_is_over_steps_and_the_mean_of_requests_is_another_number():
    long = trace([5] * 10, [5] * 10)
    short = trace([1] * 30, [5] * 30)
    assert count_acceptance([long, short]).acceptance_length == 3.0
    assert mean_request_acceptance_length([long, short]) == 4.0
    assert mean_request_acceptance_length([long, StepTrace()]) == 6.0


def test_nothing_drafted_is_a_length_of_one_without_rates():
    counts = count_acceptance([trace([0, 0], [0, 0])])
    assert counts.acceptance_length == counts.decoding_efficiency == 1.0
    assert counts.hit_rate == 0.0
    assert counts.acceptance_length_on_hits is None
    assert counts.token_acceptance_rate is None
    assert counts.offered_depth_acceptance is None
    assert counts.offered_node_acceptance is None
    assert counts.position_acceptance() == counts.conditional_position_acceptance() == ()
    assert counts.accepted_quantile(0.5) == 0.0


def test_without_a_step_nothing_was_measured():
    counts = count_acceptance([StepTrace(), StepTrace()])
    assert counts.tokens_per_forward == 1.0
    for ask in (
        lambda: counts.acceptance_length,
        lambda: counts.hit_rate,
        lambda: counts.accepted_quantile(0.5),
    ):
        with pytest.raises(MeasurementError, match="2 generations have no verify step"):
            ask()
    with pytest.raises(MeasurementError, match="2 generations have no verify step"):
        mean_request_acceptance_length([StepTrace(), StepTrace()])
    with pytest.raises(MeasurementError, match="at least one trace"):
        _ = count_acceptance([]).tokens_per_forward


@st.composite
def traces(draw) -> StepTrace:
    steps = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12))
    pairs = [(min(pair), max(pair)) for pair in steps]
    return trace([a for a, _ in pairs], [d for _, d in pairs])


@given(st.lists(traces(), min_size=1, max_size=4))
def test_counts_add_up_and_efficiency_is_the_mean_of_accepted_tokens(several):
    pooled = count_acceptance(several)
    assert sum((count_acceptance([one]) for one in several), AcceptanceCounts()) == pooled
    accepted = [a for one in several for a in one.accepted]
    if not accepted:
        return
    assert pooled.mean_accepted_tokens == pytest.approx(sum(accepted) / len(accepted) + 1)
    assert pooled.decoding_efficiency == pytest.approx(pooled.mean_accepted_tokens)
    assert pooled.acceptance_length == pytest.approx(pooled.mean_accepted_tokens)
    if pooled.num_hits:
        assert sum(pooled.position_acceptance()) == pytest.approx(sum(accepted) / pooled.num_hits)


def test_the_module_works_without_torch():
    code = "import sys, specdec_core.bench.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_drafting_nodes_are_counted_beside_candidates():
    riding = trace([1, 0], [2, 2], drafted=[6, 4]).model_copy(update={"drafting": (30, 10)})
    counts = count_acceptance([riding, trace([0, 0], [1, 0])])
    # 40 nodes rode along in 4 steps; 6 + 4 + 1 + 0 were candidates.
    assert (counts.num_drafting, counts.mean_drafting_nodes) == (40, 10.0)
    assert counts.mean_drafted_nodes == 11 / 4
    assert (counts + counts).num_drafting == 80


def test_acceptance_by_output_position_shows_a_drafter_that_turns_bad():
    # Positions at which steps begin: 1, 5, 9, 13, 17 (4 tokens each), then 21, 22, .., 28.
    good_then_bad = trace([3] * 5 + [0] * 8, [3] * 13)
    runs = acceptance_by_output_position([good_then_bad], 10)
    assert runs == (4.0, 4.0, 1.0)
    late = trace([0], [0], committed=[25])
    assert acceptance_by_output_position([late, good_then_bad], 10) == (37 / 4, 4.0, 1.0)
    assert acceptance_by_output_position([late], 1) == (None, 25.0)
    assert acceptance_by_output_position([], 10) == ()
