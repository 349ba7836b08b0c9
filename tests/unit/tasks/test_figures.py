"""Figures of cells against numbers worked out by hand."""

from __future__ import annotations

import pytest

from specdec_core.records import PhaseSeconds, SampleResult, StepTrace
from tasks.figures import Measured, figures_of


def sample(
    item: str, num_tokens: int, seconds: float, trace: StepTrace | None = None
) -> SampleResult:
    """An output of which only length, seconds and steps matter; autoregressive by default."""
    steps = num_tokens - 1
    plain = StepTrace(
        drafted=(0,) * steps, depth=(0,) * steps, accepted=(0,) * steps, committed=(1,) * steps
    )
    return SampleResult(
        item_id=item,
        prompt_tokens=3,
        token_ids=tuple(range(num_tokens)),
        text="",
        answer="",
        useful_tokens=num_tokens,
        finish_reason="length",
        trace=trace or plain,
        seconds=seconds,
    )


def steps(accepted: list[int], depth: list[int], drafting: list[int]) -> StepTrace:
    return StepTrace(
        drafted=tuple(2 * d for d in depth),
        depth=tuple(depth),
        drafting=tuple(drafting),
        accepted=tuple(accepted),
        committed=tuple(a + 1 for a in accepted),
    )


# Five steps that accept 3, 0, 5, 2 and 0 draft tokens and commit 15 in all.
FIVE = steps([3, 0, 5, 2, 0], [5, 0, 5, 5, 5], [8, 8, 8, 8, 8])


def measured(
    mine: list[SampleResult],
    plain: list[SampleResult],
    phases: PhaseSeconds | None = None,
    *,
    needs_equal_lengths: bool = True,
) -> Measured:
    return Measured(
        mine=(tuple(mine),),
        plain=(tuple(plain),),
        phases=phases or PhaseSeconds(),
        is_plain=False,
        needs_equal_lengths=needs_equal_lengths,
    )


def test_five_steps_give_the_figures_of_the_definitions() -> None:
    figures = figures_of(
        measured([sample("a", 16, 1.5, FIVE)], [sample("a", 16, 3.0)]), metric=0.25
    )
    assert (figures.num_items, figures.num_tokens, figures.num_steps) == (1, 16, 5)
    assert figures.acceptance_length == figures.mean_accepted_tokens == 3.0
    assert figures.decoding_efficiency == pytest.approx(3.0)
    assert (figures.hit_rate, figures.acceptance_length_on_hits) == (0.8, 3.5)
    quartiles = (figures.accepted_p25, figures.accepted_median, figures.accepted_p75)
    assert quartiles == (0.0, 2.0, 3.0)
    assert figures.position_acceptance == (0.75, 0.75, 0.5, 0.25, 0.25)
    assert figures.hits_by_accepted == (1, 0, 1, 1, 0, 1)
    # 40 nodes rode along and 2 x 20 were verified in 5 steps; 6 forwards wrote 16 tokens.
    assert (figures.drafting_nodes_per_step, figures.candidate_nodes_per_step) == (8.0, 8.0)
    assert figures.tokens_per_forward == pytest.approx(16 / 6)
    # All steps begin among the first 32 output tokens.
    assert figures.acceptance_by_output == (3.0,)
    assert (figures.metric, figures.tokens_per_s) == (0.25, 10.0)


def test_speedups_under_their_definitions() -> None:
    """Tokens after the first and seconds: 100 in 2 s and 30 in 1 s, against 4 s and 1 s."""
    mine = [sample("a", 101, 2.0), sample("b", 31, 1.0)]
    plain = [sample("a", 101, 4.0), sample("b", 31, 1.0)]
    figures = figures_of(measured(mine, plain), None)
    assert figures.speedup is not None
    assert figures.speedup.estimate == pytest.approx(5 / 3)
    assert figures.speedup_of_mean_rates == pytest.approx((50 + 30) / (25 + 30))
    assert figures.mean_request_speedup == pytest.approx(1.5)
    assert figures.num_paired == 2


def test_a_pair_of_unequal_lengths_counts_only_where_outputs_may_differ() -> None:
    mine = [sample("a", 101, 2.0), sample("b", 15, 1.0)]
    plain = [sample("a", 101, 4.0), sample("b", 11, 5.0)]
    strict = figures_of(measured(mine, plain), None)
    assert strict.speedup is not None
    assert (strict.speedup.estimate, strict.num_paired) == (2.0, 1)
    free = figures_of(measured(mine, plain, needs_equal_lengths=False), None)
    assert free.speedup is not None
    # 114 tokens in 3 s against 110 in 9 s.
    assert (free.speedup.estimate, free.num_paired) == (pytest.approx(38 / (110 / 9)), 2)


def test_shares_of_time_and_drift_over_repeats() -> None:
    phases = PhaseSeconds(prefill=9.0, draft=1.0, forward=6.0, verify=2.0, commit=1.0)
    repeats = [[sample("a", 16, seconds, FIVE)] for seconds in (1.0, 1.1, 1.2)]
    plain = [[sample("a", 16, 3.0)]] * 3
    figures = figures_of(
        Measured(
            mine=tuple(map(tuple, repeats)),
            plain=tuple(map(tuple, plain)),
            phases=phases,
            is_plain=False,
            needs_equal_lengths=True,
        ),
        None,
    )
    assert (figures.draft_share, figures.overhead_share) == (0.1, pytest.approx(0.4))
    assert figures.drift == pytest.approx(0.2)
    assert figures.num_repeats == 3
    # 45 tokens after the first in 3.3 s; counts are those of one repeat.
    assert figures.tokens_per_s == pytest.approx(45 / 3.3)
    assert (figures.num_tokens, figures.num_steps) == (16, 5)
    assert figures.speedup is not None
    assert figures.speedup.estimate == pytest.approx(9 / 3.3)


def test_outputs_of_one_token_have_no_steps_and_no_speed() -> None:
    figures = figures_of(measured([sample("a", 1, 0.0)], [sample("a", 1, 0.0)]), None)
    assert (figures.num_steps, figures.acceptance_length, figures.hit_rate) == (0, 1.0, None)
    assert (figures.tokens_per_s, figures.speedup, figures.num_paired) == (0.0, None, 0)


def test_two_cells_added_up_are_one_of_all_their_items() -> None:
    one = measured([sample("a", 101, 2.0)], [sample("a", 101, 4.0)], PhaseSeconds(forward=2.0))
    two = measured([sample("a", 31, 1.0)], [sample("a", 31, 1.0)], PhaseSeconds(draft=1.0))
    figures = figures_of(one + two, None)
    assert (figures.num_items, figures.num_steps) == (2, 130)
    assert figures.speedup is not None
    assert figures.speedup.estimate == pytest.approx(5 / 3)
    assert figures.phases == PhaseSeconds(forward=2.0, draft=1.0)


def test_latency_is_per_step_over_all_repeats_and_per_token_over_requests() -> None:
    slow = sample("a", 5, 0.08).model_copy(update={"step_seconds": (0.02,) * 4})
    fast = sample("b", 3, 0.02).model_copy(update={"step_seconds": (0.01,) * 2})
    found = figures_of(
        Measured(
            mine=((slow, fast), (slow, fast)),
            plain=((slow, fast), (slow, fast)),
            phases=PhaseSeconds(),
            is_plain=True,
            needs_equal_lengths=True,
        ),
        None,
    )
    # Eight steps of 20 ms and four of 10 ms; requests of 20, 10, 20 and 10 ms per token.
    assert found.step_ms is not None
    assert (found.step_ms.num, found.step_ms.p50) == (12, pytest.approx(20.0))
    assert found.token_ms is not None
    assert (found.token_ms.num, found.token_ms.p50) == (4, pytest.approx(15.0))
    assert (found.token_ms.p90, found.token_ms.p99) == (pytest.approx(20.0), pytest.approx(20.0))


def test_samples_of_former_versions_have_no_step_latency() -> None:
    figures = figures_of(measured([sample("a", 3, 0.02)], [sample("a", 3, 0.02)]), None)
    assert figures.step_ms is None
    assert figures.token_ms is not None
