"""The held-out comparison: order of requests, figures by hand, cases, decisions."""

from __future__ import annotations

import pytest

from db.schemas import HeldoutComparison, Interval
from db.store import Store
from flows.views import change
from specdec_core.records import SampleResult, StepTrace
from specdec_core.search.outcome import SearchOutcome
from tasks.cases import count_cases, qualitative_cases
from tasks.heldout import (
    Heldout,
    compare_heldout,
    metric_change,
    plan_heldout,
)
from tasks.publish import decide
from tests.table_evaluator import Control, TableEvaluator, config, workload
from tests.unit.search.test_tss_example import outcome_at


def sample(item: str, score: float | None, text: str = "a", steps: int = 4) -> SampleResult:
    return SampleResult(
        item_id=item,
        prompt_tokens=1,
        token_ids=tuple(range(9)),
        text=text,
        answer=text,
        useful_tokens=9,
        finish_reason="stop_token",
        score=score,
        raw_score=score,
        trace=StepTrace(
            drafted=(2,) * steps, depth=(2,) * steps, accepted=(1,) * steps, committed=(2,) * steps
        ),
        seconds=0.5,
    )


def test_chunks_alternate_between_the_three_and_go_backwards_every_second_time() -> None:
    ids = [f"item-{i:02d}" for i in range(5)]
    plan = plan_heldout(workload(), "2,3", "prompt-lookup", ids, 32)
    arms = [arm for arm, _ in plan.in_order]
    once = ["dense", "sparse", "autoregressive"]
    assert arms == [*once, *once[::-1], *once]
    assert [len(chunk["dense"].item_ids) for chunk in plan.chunks] == [2, 2, 1]
    first = plan.chunks[0]
    assert (first["sparse"].skip, first["sparse"].drafter.method) == ("2,3", "prompt-lookup")
    assert (first["autoregressive"].skip, first["autoregressive"].drafter.method) == ("", "none")
    for request in first.values():
        assert (request.batch_size, request.mode, request.is_timed) == (1, "decode", True)


def test_figures_over_all_chunks(store: Store, control: Control) -> None:
    plan = plan_heldout(workload(), "2", "prompt-lookup", ["item-01", "item-02"], 32)
    evaluator = TableEvaluator(control.folder)
    for request in plan.chunks[0].values():
        store.evaluations.put(request, evaluator.run(request, lambda: False))
    found = compare_heldout(store, plan, workload().suite)
    assert found is not None
    # 24 tokens after the first: 12 dense steps of 10 ms, 10 sparse ones, 24 autoregressive ones.
    assert found.comparison.acceptance_dense == pytest.approx(2.0)
    assert found.comparison.acceptance_sparse == pytest.approx(2.4)
    assert found.comparison.acceptance_change.estimate == pytest.approx(0.2)
    assert found.comparison.tokens_per_s_dense == pytest.approx(200)
    assert found.comparison.speedup.estimate == pytest.approx(1.2)
    assert found.comparison.speedup_over_autoregressive is not None
    assert found.comparison.speedup_over_autoregressive.estimate == pytest.approx(2.4)
    assert found.guards == ()


def test_a_chunk_that_one_of_the_three_lacks_is_left_out(store: Store, control: Control) -> None:
    ids = [f"item-{i:02d}" for i in range(4)]
    plan = plan_heldout(workload(), "2", "prompt-lookup", ids, 32)
    evaluator = TableEvaluator(control.folder)
    assert compare_heldout(store, plan, workload().suite) is None
    for request in [*plan.chunks[0].values(), plan.chunks[1]["dense"]]:
        store.evaluations.put(request, evaluator.run(request, lambda: False))
    found = compare_heldout(store, plan, workload().suite)
    assert found is not None
    assert found.comparison.num_items == 2
    assert found.notes == ("2 held-out items could not be evaluated",)


def test_metric_change_is_relative_or_near_zero_a_difference() -> None:
    dense = [sample("a", 0.5), sample("b", 0.3)]
    found = metric_change(dense, [sample("a", 0.5), sample("b", 0.1)])
    assert (found.kind, found.notes) == ("relative", ())
    assert found.change is not None
    assert found.change.estimate == pytest.approx(-0.25)
    zero = [sample("a", 0.0), sample("b", 0.0)]
    found = metric_change(zero, [sample("a", 0.5), sample("b", 0.1)])
    assert (found.kind, len(found.notes)) == ("difference", 1)
    assert found.change is not None
    assert found.change.estimate == pytest.approx(0.3)
    same = metric_change([sample("a", None)], [sample("a", None)])
    assert (same.name, same.dense, same.sparse) == ("agreement", 1.0, 1.0)


def test_a_plain_difference_is_said_to_be_one_and_is_not_shown_in_per_cent() -> None:
    found = heldout(around(-0.2, 0.1), around(0.2, 0.1), around(1.1, 0.05))
    plain = found.comparison.model_copy(update={"metric_change_kind": "difference"})
    decision = decide(outcome_at(-0.05)[0], Heldout(plain, (), (), ()), config())
    assert "the metric changed by -0.2000 (-0.3000 to -0.1000), below the tolerance of -0.0500" in (
        decision.reason
    )
    assert change(plain.metric_change, "difference") == "-0.2000 [-0.3000, -0.1000]"


def test_cases_show_the_largest_changes_and_texts_that_differ() -> None:
    suite = workload().suite
    scores = {"item-00": 0.1, "item-01": 0.3, "item-02": 0.5, "item-03": 0.2, "item-04": 0.2}
    dense = [sample(item, 0.2) for item in scores]
    sparse = [sample(item, score) for item, score in scores.items()]
    sparse[4] = sample("item-04", 0.2, text="another")
    cases = qualitative_cases(dense, sparse, suite)
    assert [(case.item_id, case.verdict) for case in cases] == [
        ("item-02", "better"),
        ("item-01", "better"),
        ("item-04", "same"),
        ("item-03", "same"),
        ("item-00", "worse"),
    ]
    assert cases[0].prompt == "prompt 2"
    assert cases[0].reference == "answer 2"


def test_every_scored_item_counts_as_better_same_or_worse() -> None:
    dense = [sample("a", 0.2), sample("b", 0.2), sample("c", 0.2), sample("d", None)]
    sparse = [sample("a", 0.3), sample("b", 0.2 + 1e-12), sample("c", 0.0), sample("d", None)]
    counts = count_cases(dense, sparse)
    assert counts is not None
    assert (counts.better, counts.same, counts.worse) == (1, 1, 1)
    assert count_cases(dense[3:], sparse[3:]) is None


def around(estimate: float, spread: float) -> Interval:
    return Interval(estimate=estimate, low=estimate - spread, high=estimate + spread)


def heldout(metric: Interval | None, acceptance: Interval, speed: Interval) -> Heldout:
    comparison = HeldoutComparison(
        num_items=64,
        acceptance_dense=2.0,
        acceptance_sparse=2.0,
        acceptance_change=acceptance,
        metric_change=metric,
        tokens_per_s_dense=10.0,
        tokens_per_s_sparse=10.0,
        speedup=speed,
        guards_dense={},
        guards_sparse={},
    )
    return Heldout(comparison, (), (), ())


@pytest.mark.parametrize(
    ("found", "verdict", "text"),
    [
        (heldout(around(-0.03, 0.05), around(0.2, 0.1), around(1.1, 0.05)), "published", "holds"),
        (heldout(None, around(0.2, 0.1), around(1.1, 0.05)), "published", "holds"),
        # The whole interval is below -5 %.
        (heldout(around(-0.2, 0.1), around(0.2, 0.1), around(1.1, 0.05)), "did not hold", "metric"),
        (heldout(None, around(-0.2, 0.1), around(1.1, 0.05)), "did not hold", "acceptance"),
        (heldout(None, around(0.1, 0.1), around(0.9, 0.05)), "did not hold", "slower"),
        (heldout(None, around(-0.01, 0.1), around(0.99, 0.1)), "did not hold", "neither"),
        (None, "did not hold", "no held-out item"),
    ],
)
def test_decisions(found: Heldout | None, verdict: str, text: str) -> None:
    outcome: SearchOutcome = outcome_at(-0.05)[0]
    decision = decide(outcome, found, config())
    assert decision.verdict == verdict
    assert text in decision.reason


def test_degenerate_outputs_are_never_published() -> None:
    fine = heldout(None, around(0.9, 0.1), around(1.8, 0.05))
    bad = Heldout(fine.comparison, ("longest repeated passage grew",), (), ())
    decision = decide(outcome_at(-0.05)[0], bad, config())
    assert decision.verdict == "did not hold"
    assert "repeated passage" in decision.reason
