"""Which drafts decoding confirms, from counts of trials that can be checked by hand."""

from __future__ import annotations

import pytest

from specdec_core.bench.depths import DepthCounts
from specdec_core.config.draft_evaluation import DraftedShape, DraftEvaluationConfig
from tasks.draft_report import DepthAgreement, DraftCell, DraftEvaluation
from tasks.training_report import judge

# A gap of 0.05 and four standard errors are allowed, 40 trials are enough.
CONFIG = DraftEvaluationConfig()


def depth(
    number: int, num_trials: int, num_accepted: int, *, is_exact: bool = True
) -> DepthAgreement:
    """Trials whose chance is 0.9 each."""
    counts = DepthCounts(num_trials, num_accepted, 0.9 * num_trials, 0.09 * num_trials)
    return DepthAgreement.of(number, counts, is_exact=is_exact, config=CONFIG)


def cell(
    domain: str,
    *depths: DepthAgreement,
    shape: DraftedShape = "chain",
    error: str | None = None,
) -> DraftCell:
    return DraftCell(
        domain=domain,
        shape=shape,
        temperature=1.0,
        drafter="draft-model",
        run_id="r",
        evaluation_key="k",
        depths=depths,
        error=error,
    )


def evaluation(*cells: DraftCell) -> DraftEvaluation:
    return DraftEvaluation(
        draft="/x",
        draft_identity="d",
        reference_identity="d",
        target="path:/t",
        target_identity="t",
        config=CONFIG,
        cells=cells,
    )


def test_domains_with_too_few_steps_alone_are_enough_together() -> None:
    found = evaluation(cell("a", depth(1, 20, 18)), cell("b", depth(1, 20, 18)))
    assert [one.agreement for one in found.cells] == ["not compared", "not compared"]
    (setting,) = found.settings
    assert (setting.depths[0].num_trials, setting.depths[0].realised) == (40, pytest.approx(0.9))
    assert judge(found)[0] == "validated"


def test_a_gap_in_a_domain_that_is_too_small_shows_in_all_domains() -> None:
    """36 of 79 where 0.9 is expected; 0.05 + 4 * sqrt(0.09 / 79) = 0.185 would be allowed."""
    found = evaluation(cell("a", depth(1, 39, 0)), cell("b", depth(1, 40, 36)))
    assert [one.agreement for one in found.cells] == ["not compared", "yes"]
    state, reason = judge(found)
    said = "all domains, chain, temperature 1, depth 1: expected 0.900, realised 0.456 in 79 steps"
    assert (state, reason.partition(": ")[2]) == ("rejected", said)


def test_a_gap_of_the_only_domain_is_said_once() -> None:
    state, reason = judge(evaluation(cell("a", depth(1, 40, 0))))
    assert state == "rejected"
    assert reason.endswith(
        "a, chain, temperature 1, depth 1: expected 0.900, realised 0.000 in 40 steps"
    )


def test_every_shape_and_temperature_must_have_been_compared() -> None:
    found = evaluation(cell("a", depth(1, 400, 360)), cell("a", depth(1, 39, 35), shape="tree"))
    state, reason = judge(found)
    assert state == "candidate"
    assert "(tree, temperature 1)" in reason


def test_a_step_without_a_draft_is_no_comparison() -> None:
    assert judge(evaluation(cell("a")))[0] == "candidate"


def test_depths_that_training_has_not_computed_decide_nothing() -> None:
    beyond = depth(2, 40, 0, is_exact=False)
    found = evaluation(cell("a", depth(1, 40, 36), beyond), cell("b", depth(1, 40, 36), beyond))
    assert judge(found)[0] == "validated"


def test_a_cell_that_failed_is_not_called_equal() -> None:
    state, reason = judge(evaluation(cell("a", depth(1, 40, 36)), cell("b", error="out of memory")))
    assert state == "candidate"
    assert "1 of 2 cells failed (out of memory)" in reason
