"""From logits to the sampled distribution: by hand, and against the library's own processors."""

from __future__ import annotations

import math

import pytest
import torch
from transformers.generation import logits_process as library

from specdec_core.bench.distribution import distribution_test
from specdec_core.config.sampling import Sampling, parse_sampling
from specdec_core.decoding.sampling import (
    draw_children,
    draw_token,
    fit_vocabulary,
    probabilities,
    process_logits,
)
from specdec_core.randomness import Noise


def row_of(*chances: float) -> torch.Tensor:
    """Return logits whose softmax is `chances`, not normalised on purpose."""
    return torch.tensor(chances, dtype=torch.float64).log() + 3.0


def law(row: torch.Tensor, text: str, tokens=(), num_prompt: int = 0) -> list[float]:
    return probabilities(process_logits(row, parse_sampling(text), tokens, num_prompt)).tolist()


def test_top_p_keeps_the_smallest_set_with_its_mass():
    row = row_of(0.5, 0.3, 0.15, 0.05)
    assert law(row, "temperature=1,top_p=0.7") == pytest.approx([0.625, 0.375, 0, 0])
    assert law(row, "temperature=1,top_p=0.49") == pytest.approx([1, 0, 0, 0])
    assert law(row, "temperature=1,top_p=0.97") == pytest.approx([0.5, 0.3, 0.15, 0.05])


def test_top_p_counts_the_mass_that_top_k_left():
    row = row_of(0.4, 0.3, 0.2, 0.1)
    # 4/9 + 3/9 is 0.78 of the first three, but 0.4 + 0.3 is 0.7 of all.
    expected = [4 / 7, 3 / 7, 0, 0]
    assert law(row, "temperature=1,top_k=3,top_p=0.75") == pytest.approx(expected)


def test_temperature_comes_before_truncation():
    row = row_of(0.5, 0.3, 0.15, 0.05)
    # Squared: .25 .09 .0225 .0025 of .365; the first is .685 of them.
    assert law(row, "temperature=0.5,top_p=0.68") == pytest.approx([1, 0, 0, 0])
    squares = [value / 0.365 for value in (0.25, 0.09, 0.0225, 0.0025)]
    assert law(row, "temperature=0.5") == pytest.approx(squares)


def test_min_p_is_relative_to_the_largest():
    row = row_of(0.5, 0.3, 0.15, 0.05)
    assert law(row, "temperature=1,min_p=0.2") == pytest.approx([50 / 95, 30 / 95, 15 / 95, 0])
    assert law(row, "temperature=1,min_p=1") == pytest.approx([1, 0, 0, 0])


def test_equal_logits_at_the_cut_are_kept_from_the_lowest_id():
    row = torch.tensor([1.0, 2.0, 1.0, 1.0, 0.0])
    found = process_logits(row, Sampling(temperature=1.0, top_k=3), (), 0)
    assert torch.isfinite(found).tolist() == [True, True, True, False, False]
    flat = torch.zeros(1000)
    kept = torch.isfinite(process_logits(flat, Sampling(temperature=1.0, top_p=0.3), (), 0))
    # Rounding of equal shares may need one more.
    assert int(kept.sum()) in (300, 301)
    assert bool(kept[:300].all())


def test_penalties_by_hand():
    row = torch.tensor([2.0, -1.0, 1.0, 0.5])
    text = "repetition_penalty=2"
    found = process_logits(row, parse_sampling(text), [0, 1, 1, 0], 2)
    assert found.tolist() == [1.0, -2.0, 1.0, 0.5]
    # Presence counts the output alone, once, and comes after the repetition penalty.
    both = parse_sampling("repetition_penalty=2,presence_penalty=0.25")
    assert process_logits(row, both, [0, 1, 3, 3], 2).tolist() == [1.0, -2.0, 1.0, 0.0]
    assert process_logits(row, both, [0, 1], 2).tolist() == [1.0, -2.0, 1.0, 0.5]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rows_are_computed_in_single_precision_or_better_and_never_changed(dtype):
    row = torch.tensor([2.0, -1.0, 1.0, 0.5], dtype=dtype)
    before = row.clone()
    sampling = parse_sampling(
        "temperature=0.7,top_k=3,top_p=0.9,min_p=0.1,repetition_penalty=1.2,presence_penalty=1"
    )
    found = process_logits(row, sampling, [0, 2], 1)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(row, before)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("vocab_size", [40, 1000])
@pytest.mark.parametrize(
    ("text", "library_steps"),
    [
        ("temperature=0.7", [library.TemperatureLogitsWarper(0.7)]),
        ("temperature=1,top_k=7", [library.TopKLogitsWarper(7)]),
        ("temperature=1,top_p=0.8", [library.TopPLogitsWarper(0.8)]),
        ("temperature=1,min_p=0.1", [library.MinPLogitsWarper(0.1)]),
        ("repetition_penalty=1.7", [library.RepetitionPenaltyLogitsProcessor(1.7)]),
        (
            "temperature=1.4,top_k=30,top_p=0.9,min_p=0.02,repetition_penalty=1.3",
            [
                library.RepetitionPenaltyLogitsProcessor(1.3),
                library.TemperatureLogitsWarper(1.4),
                library.TopKLogitsWarper(30),
                library.TopPLogitsWarper(0.9),
                library.MinPLogitsWarper(0.02),
            ],
        ),
    ],
)
def test_the_library_does_the_same(seed, vocab_size, text, library_steps):
    generator = torch.Generator().manual_seed(seed)
    row = 3 * torch.randn(vocab_size, dtype=torch.float64, generator=generator)
    tokens = torch.randint(vocab_size, (12,), generator=generator)
    expected = row[None].clone()
    for step in library_steps:
        expected = step(tokens[None], expected)
    found = process_logits(row, parse_sampling(text), tokens.tolist(), 5)
    torch.testing.assert_close(found, expected[0], rtol=1e-12, atol=1e-12)


def test_missing_ids_of_another_vocabulary_have_no_probability():
    row = torch.tensor([0.0, 1.0, 2.0])
    wider = fit_vocabulary(row, 5)
    assert wider.tolist() == [0.0, 1.0, 2.0, -math.inf, -math.inf]
    assert fit_vocabulary(row[None], 2).tolist() == [[0.0, 1.0]]
    assert law(wider, "temperature=1,top_k=4")[3:] == [0.0, 0.0]
    assert law(wider, "temperature=1,top_p=0.99")[3:] == [0.0, 0.0]
    assert all(draw_token(wider, Noise(0), "sample", place) < 3 for place in range(200))


def test_tokens_are_drawn_with_their_probabilities():
    chances = (0.4, 0.05, 0.25, 0.3, 0.0)
    row = row_of(*chances)
    drawn = [draw_token(row, Noise(1), "sample", place) for place in range(6000)]
    counts = {token: drawn.count(token) for token in set(drawn)}
    assert distribution_test(counts, dict(enumerate(chances))).is_passed()


def test_children_without_replacement_are_drawn_one_after_the_other():
    chances = (0.5, 0.3, 0.2)
    row = row_of(*chances)
    pairs = [tuple(draw_children(row, 2, Noise(2), "draft", place)) for place in range(6000)]
    expected = {
        (a, b): chances[a] * chances[b] / (1 - chances[a])
        for a in range(3)
        for b in range(3)
        if a != b
    }
    assert distribution_test({pair: pairs.count(pair) for pair in set(pairs)}, expected).is_passed()
    # There are no more tokens than three, and the fourth has no probability.
    assert sorted(draw_children(row_of(0.5, 0.3, 0.2, 0.0), 9, Noise(2), "draft", 0)) == [0, 1, 2]


def test_children_with_replacement_are_independent():
    chances = (0.5, 0.3, 0.2)
    row = row_of(*chances)
    pairs = [
        tuple(draw_children(row, 2, Noise(2), "draft", place, with_replacement=True))
        for place in range(6000)
    ]
    expected = {(a, b): chances[a] * chances[b] for a in range(3) for b in range(3)}
    assert distribution_test({pair: pairs.count(pair) for pair in set(pairs)}, expected).is_passed()
