"""Chances of acceptance from tables of probabilities, by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specdec_core.training.draft import DraftOutput, DraftPass, Head
from specdec_core.training.expected import AcceptanceRule, acceptance_chances, one_sequence

TARGET = torch.tensor([[0.5, 0.25, 0.125, 0.125], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
DRAFT = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)


def head_of(rows: Tensor, target_ids: Tensor | None = None) -> Head:
    """Return a head that makes log-probabilities ``rows[t]`` of the t-th unit vector."""
    return Head(rows.log().T.contiguous(), target_ids=target_ids)


def chances(
    rule: AcceptanceRule,
    *,
    target: Tensor = TARGET,
    draft: Tensor = DRAFT,
    target_ids: Tensor | None = None,
    shifts: tuple[int, ...] = (1,),
    tokens: tuple[int, ...] = (3, 0, 1),
) -> list[list[float]]:
    """Return the chances of a prompt of one token and an output of two."""
    units = torch.eye(3, 2, dtype=torch.float64)
    batch = one_sequence(tokens, 1, units, None)
    head = head_of(draft, target_ids)
    passes = tuple(DraftPass(units[None], head, shift=shift) for shift in shifts)
    return acceptance_chances(DraftOutput(passes, {}), batch, head_of(target), 1, rule)


def test_drawn_tokens_are_accepted_with_the_overlap_of_both_distributions() -> None:
    (found,) = chances(AcceptanceRule(1.0, (1,), is_drawn=True))
    assert found == pytest.approx([0.25 + 0.25 + 0.125 + 0.125, 0.1 + 0.2 + 0.2 + 0.1])


def test_chosen_tokens_are_accepted_with_the_targets_mass_on_them() -> None:
    one, two = chances(AcceptanceRule(1.0, (1, 2)))
    assert one == pytest.approx([0.5, 0.1])  # of equal draft logits the lowest id is chosen
    assert two == pytest.approx([0.75, 0.3])


def test_the_temperature_counts_for_target_and_draft() -> None:
    # At temperature 1/2 probabilities are squared: 16, 4, 1, 1 of 22; the draft stays uniform.
    (found,) = chances(AcceptanceRule(0.5, (1,), is_drawn=True))
    assert found[0] == pytest.approx(0.25 + 4 / 22 + 1 / 22 + 1 / 22)


def test_greedy_chances_say_whether_the_token_that_came_was_offered() -> None:
    one, two = chances(AcceptanceRule(0.0, (1, 2)))
    assert one == [1.0, 0.0]
    assert two == [1.0, 1.0]


def test_mass_outside_a_narrowed_vocabulary_is_never_accepted() -> None:
    target = torch.tensor([[0.25, 0.5, 0.25, 1e-12]] * 2, dtype=torch.float64)
    perfect_inside = torch.tensor([[0.5, 0.5]] * 2, dtype=torch.float64)
    rule = AcceptanceRule(1.0, (1,), is_drawn=True)
    ids = torch.tensor([0, 2])
    (found,) = chances(rule, target=target, draft=perfect_inside, target_ids=ids)
    assert found == pytest.approx([0.5, 0.5])
    (greedy,) = chances(
        AcceptanceRule(0.0, (2,)), draft=perfect_inside, target_ids=ids, tokens=(3, 1, 2)
    )
    assert greedy == [0.0, 1.0]


def test_a_padded_draft_is_cut_to_the_targets_ids() -> None:
    padded = torch.cat((DRAFT / 2, torch.full((2, 1), 0.5, dtype=torch.float64)), 1)
    rule = AcceptanceRule(1.0, (1,), is_drawn=True)
    assert chances(rule, draft=padded)[0] == pytest.approx([0.75, 0.6])


def test_every_depth_has_the_rows_of_its_pass() -> None:
    # The second pass predicts two places behind its rows: nothing says what follows the prompt.
    one, two, three = chances(AcceptanceRule(1.0, (1, 1, 1), is_drawn=True), shifts=(1, 2))
    assert one == pytest.approx([0.75, 0.6])
    uniform = [0.1 + 0.2 + 0.25 + 0.25]
    assert two == pytest.approx([0.0, *uniform])
    assert three == two
