"""Comparisons of losses from evaluated prompts, on numbers that can be checked by hand."""

from __future__ import annotations

import pytest

from specdec_core.config.draft_evaluation import DraftedShape, DraftEvaluationConfig
from tasks.draft_report import DraftCell, DraftEvaluation, PromptAcceptance
from tasks.loss_compose import compare_arms


def prompt(item_id: str, *accepted: int) -> PromptAcceptance:
    return PromptAcceptance(
        item_id=item_id,
        num_steps=len(accepted),
        num_tokens=1 + len(accepted) + sum(accepted),
        accepted=accepted,
    )


def cell(
    domain: str,
    *samples: PromptAcceptance,
    shape: DraftedShape = "chain",
    error: str | None = None,
) -> DraftCell:
    return DraftCell(
        domain=domain,
        shape=shape,
        temperature=1.0,
        drafter="draft-model",
        run_id="r",
        evaluation_key="e",
        samples=samples,
        error=error,
    )


def evaluation(*cells: DraftCell) -> DraftEvaluation:
    return DraftEvaluation(
        draft="path:/draft",
        draft_identity="d",
        reference_identity="d",
        target="pypi:smollm2-135m",
        target_identity="t",
        config=DraftEvaluationConfig(),
        cells=cells,
    )


def test_seeds_are_pooled_for_the_figure_and_kept_apart_for_the_spread() -> None:
    arms = {
        # Domain a: 4 / 4 and 2 / 2 steps; domain b: 6 / 2.
        ("kl", 0): evaluation(cell("a", prompt("1", 1, 1, 1, 1)), cell("b", prompt("2", 3, 3))),
        ("kl", 1): evaluation(cell("a", prompt("1", 0, 2)), cell("b", prompt("2", 2, 2))),
        ("wtv", 0): evaluation(cell("a", prompt("1", 2, 2)), cell("b", prompt("2", 3, 3))),
        ("wtv", 1): evaluation(cell("a", prompt("1", 2, 2)), cell("b", prompt("2", 3, 3))),
    }
    cells, changes, notes = compare_arms(arms)
    assert notes == ()
    kl, wtv = cells
    assert (kl.loss, kl.num_seeds, kl.num_prompts, kl.num_steps) == ("kl", 2, 2, 10)
    # Accepted 4 + 6 + 2 + 4 of 10 steps; seeds: means of 1 and 3, of 1 and 2.
    assert kl.accepted_per_step.estimate == pytest.approx(1.6)
    assert kl.by_domain == {"a": pytest.approx(1.0), "b": pytest.approx(2.5)}
    assert kl.seed_means == (2.0, 1.5)
    assert (kl.mean, kl.sd) == (1.75, pytest.approx(0.5 / 2**0.5))
    # Steps in order: 0 1 1 1 1 2 2 2 3 3.
    assert (kl.p25, kl.median, kl.p75) == (1.0, 1.5, 2.0)
    assert wtv.accepted_per_step.estimate == 2.5
    (change,) = changes
    assert (change.loss, change.against, change.num_prompts) == ("wtv", "kl", 2)
    assert change.accepted is not None
    assert change.accepted.estimate == pytest.approx(2.5 / 1.6 - 1)
    # With the bonus token of every step: 3.5 tokens against 2.6.
    assert change.length.estimate == pytest.approx(3.5 / 2.6 - 1)
    # Prompt 1 alone: 2 against 1; prompt 2 alone: 3 against 2.5.
    assert change.accepted.low == pytest.approx(0.2)
    assert change.accepted.high == pytest.approx(1.0)


def test_prompts_that_a_training_lacks_are_left_out_everywhere_and_counted() -> None:
    arms = {
        ("kl", 0): evaluation(cell("a", prompt("1", 1), prompt("2", 5))),
        ("wtv", 0): evaluation(cell("a", prompt("1", 2))),
    }
    cells, _, notes = compare_arms(arms)
    assert [each.num_prompts for each in cells] == [1, 1]
    assert cells[0].accepted_per_step.estimate == 1.0
    assert notes == ("chain, temperature 1: 1 prompts lack a result of some training",)


def test_settings_are_apart_and_one_without_shared_prompts_is_said() -> None:
    arms = {
        ("kl", 0): evaluation(cell("a", prompt("1", 1)), cell("a", prompt("1", 2), shape="tree")),
        ("wtv", 0): evaluation(cell("a", prompt("1", 1)), cell("a", prompt("2", 2), shape="tree")),
    }
    cells, changes, notes = compare_arms(arms)
    assert [(each.loss, each.shape) for each in cells] == [("kl", "chain"), ("wtv", "chain")]
    assert len(changes) == 1
    assert notes[-1] == "tree, temperature 1: no prompt was answered by all trainings"


def test_a_training_without_a_result_is_noted_and_the_others_are_compared() -> None:
    lost = cell("a", error="the worker ran out of memory")
    arms = {
        ("kl", 0): evaluation(cell("a", prompt("1", 1))),
        ("kl", 1): evaluation(cell("a", prompt("1", 3))),
        ("wtv", 0): evaluation(cell("a", prompt("1", 4))),
        ("wtv", 1): evaluation(lost),
        ("ce", 0): evaluation(lost),
    }
    cells, (change,), notes = compare_arms(arms)
    figures = [(each.loss, each.num_seeds, each.accepted_per_step.estimate) for each in cells]
    assert figures == [("kl", 2, 2.0), ("wtv", 1, 4.0)]
    assert (change.loss, change.against) == ("wtv", "kl")
    assert notes == tuple(
        f"chain, temperature 1, a: {one}: no result (the worker ran out of memory)"
        for one in ("wtv seed 1", "ce seed 0")
    )


def test_a_domain_that_one_training_lacks_is_left_out_of_all_and_noted() -> None:
    arms = {
        ("kl", 0): evaluation(cell("a", prompt("1", 1)), cell("b", prompt("2", 5))),
        ("wtv", 0): evaluation(cell("a", prompt("1", 2)), cell("b", prompt("2"))),
    }
    cells, _, notes = compare_arms(arms)
    assert [each.by_domain for each in cells] == [{"a": 1.0}, {"a": 2.0}]
    assert notes == (
        "chain, temperature 1, b: wtv seed 0: no result (no prompt took a step)",
        "chain, temperature 1: 1 prompts lack a result of some training",
    )


def test_a_base_that_accepts_nothing_has_no_relative_change_but_one_with_the_bonus() -> None:
    arms = {
        ("kl", 0): evaluation(cell("a", prompt("1", 0, 0))),
        ("wtv", 0): evaluation(cell("a", prompt("1", 1, 1))),
    }
    _, (change,), _ = compare_arms(arms)
    assert change.accepted is None
    assert change.length.estimate == 1.0


@pytest.mark.parametrize(
    ("num_prompts", "accepted", "reading"),
    [
        (10, (1, 2), "more"),
        (10, (2, 1), "less"),
        (10, (2, 2), "not told apart"),
        # The same change, its interval as far from zero.
        (9, (1, 2), "too few prompts"),
    ],
)
def test_an_interval_is_read_where_it_is_of_enough_prompts(
    num_prompts: int, accepted: tuple[int, int], reading: str
) -> None:
    arms = {
        (loss, 0): evaluation(cell("a", *(prompt(str(item), count) for item in range(num_prompts))))
        for loss, count in zip(("kl", "wtv"), accepted, strict=True)
    }
    _, (change,), _ = compare_arms(arms)
    assert change.reading == reading


def test_one_seed_has_no_deviation_and_no_evaluation_no_cells() -> None:
    cells, _, _ = compare_arms({("kl", 0): evaluation(cell("a", prompt("1", 1)))})
    assert cells[0].sd is None
    assert compare_arms({}) == ((), (), ())
