"""Rankings against sorting, with ties, in every dtype and on both search paths."""

import math

import pytest
import torch

from specdec_core.decoding.ranking import first_argmax, top_rows
from tests.doubles import slow_ranking

# 8 has no blocks; 96 has blocks of 32 but too few; 4096 is searched in two stages.
VOCAB_SIZES = (1, 2, 8, 96, 1000, 4096)


def random_rows(vocab_size: int, kind: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(vocab_size)
    if kind == "tied":
        values = torch.randint(0, 3, (6, vocab_size), generator=generator)
    else:
        values = torch.randn((6, vocab_size), generator=generator, dtype=torch.float64)
    return values.to({"bf16": torch.bfloat16, "tied": torch.float32}.get(kind, torch.float64))


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
@pytest.mark.parametrize("kind", ["bf16", "tied", "float64"])
def test_rankings_equal_a_stable_sort(vocab_size, kind):
    rows = random_rows(vocab_size, kind)
    values = rows.tolist()
    assert first_argmax(rows).tolist() == [slow_ranking(row, 1)[0] for row in values]
    for k in (1, 2, 8, 20):
        found = top_rows(rows, k)
        assert found.ids == [slow_ranking(row, k) for row in values]
        expected = [1e9] * 6
        if vocab_size > 1:
            expected = [a - b for a, b in (sorted(row, reverse=True)[:2] for row in values)]
        assert found.gaps == expected


def test_leading_dimensions_are_kept():
    logits = random_rows(4096, "tied").reshape(2, 3, 4096)
    assert first_argmax(logits).tolist() == logits.max(-1).indices.tolist()
    assert first_argmax(logits[0, 0]).item() == logits[0, 0].tolist().index(2.0)


@pytest.mark.parametrize("vocab_size", [8, 4096])
def test_a_row_of_equal_logits_ranks_the_lowest_ids(vocab_size):
    rows = torch.full((2, vocab_size), -math.inf)
    rows[1] = 1.0
    assert top_rows(rows, 3).ids == [[0, 1, 2], [0, 1, 2]]


def test_a_run_of_ties_that_begins_above_the_cut_keeps_what_is_above_it():
    row = torch.zeros(4096)
    row[4000] = 5.0
    row[3000:3050] = 2.0
    assert top_rows(row[None], 4).ids == [[4000, 3000, 3001, 3002]]


def test_padding_rows_of_nan_do_not_disturb_the_others():
    logits = random_rows(4096, "float64").reshape(2, 3, 4096)
    expected = logits[0].max(-1).indices.tolist()
    logits[1] = math.nan
    assert first_argmax(logits)[0].tolist() == expected
