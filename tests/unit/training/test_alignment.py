"""Which row predicts which token: the picture of the module, and a language where it shows."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import one_hot

from specdec_core.training.alignment import by_position, prediction_mask, row_of
from specdec_core.training.losses.eager import loss_of_logits
from tests.unit.training.loss_cases import from_logits, losses, make_batch

RESPONSE = torch.tensor([[False, False, True, True, True, False]])


def test_a_row_predicts_the_token_its_shift_behind_it():
    rows = torch.arange(1, 7).reshape(1, 6)  # row number plus 1, so that 0 says there is none
    for shift, expected in {1: [0, 1, 2, 3, 4, 5], 2: [0, 0, 1, 2, 3, 4]}.items():
        assert by_position(rows, shift)[0].tolist() == expected
        assert expected == [max(row_of(t, shift), -1) + 1 for t in range(6)]
    assert by_position(rows, 9)[0].tolist() == [0] * 6


def test_further_dimensions_move_along():
    rows = torch.arange(12.0).reshape(1, 3, 4)
    assert torch.equal(by_position(rows, 1)[0, 1:], rows[0, :2])


def test_the_first_response_token_counts_and_later_passes_lack_rows_of_short_prompts():
    assert prediction_mask(RESPONSE, 1)[0].tolist() == RESPONSE[0].tolist()
    assert prediction_mask(RESPONSE, 3)[0].tolist() == [False, False, False, True, True, False]


def test_token_0_has_no_row():
    everything = torch.ones(1, 3, dtype=torch.bool)
    assert prediction_mask(everything, 1)[0].tolist() == [False, True, True]


def test_masked_rows_and_other_documents_predict_nothing():
    rows = torch.tensor([[True, False, True, True, True, True]])
    assert prediction_mask(RESPONSE, 1, rows)[0].tolist() == [
        False,
        False,
        False,
        True,
        True,
        False,
    ]
    documents = torch.tensor([[0, 0, 0, 1, 1, 1]])
    found = prediction_mask(RESPONSE, 1, document_ids=documents)
    assert found[0].tolist() == [False, False, True, False, True, False]


@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("said", [0, 1, 2, 3])
def test_in_a_cyclic_language_only_the_right_shift_gives_a_perfect_drafter_no_loss(shift, said):
    """Token t is t mod 5; the drafter says at row t, with certainty, token t + said."""
    positions = torch.arange(12)
    batch = replace(make_batch(spans=[[(4, 11)]], length=12), input_ids=(positions % 5)[None])
    logits = 100.0 * one_hot((positions + said) % 5, 5)[None].double()
    target = 100.0 * one_hot((positions + 1) % 5, 5)[None].double()
    for name in ("ce", "kl", "tv"):
        found = loss_of_logits(losses(name), batch, [from_logits(logits, shift)], target)
        assert (float(found.loss) < 1e-9) == (said == shift)
        assert found.counts.positions.tolist() == [7.0]
