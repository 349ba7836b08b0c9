"""Prompts prefilled together: the same states as alone, bit by bit where each has its own pass."""

import pytest
import torch

from specdec_core.models import view as views
from specdec_core.models.tiny import FAMILIES, tiny_target

PROMPTS = [[3], [9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2], [3, 1, 4, 1, 5]]
SHARED = [7, 7, 1, 2, 9]


def prefilled(view, prompts, prefix):
    cache = view.new_cache(len(prompts), 24)
    logits, hidden = view.prefill_tapped(prompts, cache, (0, 2), prefix)
    return logits, hidden, [cache.rows(row) for row in range(len(prompts))]


def pairs(target, shared):
    """Logits, hidden states and cache rows of every prompt, in the batch and alone."""
    view = target.view()
    prefix = view.build_prefix(shared, (0, 2)) if shared else None
    prompts = [[*shared, *prompt] for prompt in PROMPTS]
    together = prefilled(view, prompts, prefix)
    for row, prompt in enumerate(prompts):
        alone = prefilled(view, [prompt], prefix)
        yield from ((found[row], each[0]) for found, each in zip(together, alone, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("shared", [[], SHARED], ids=["whole", "shared"])
def test_on_the_processor_a_prompt_becomes_the_same_bits_alone_and_in_a_batch(
    family, dtype, shared
):
    for found, expected in pairs(tiny_target(family, dtype=dtype), shared):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("shared", [[], SHARED], ids=["whole", "shared"])
def test_prompts_of_one_pass_are_as_alone(family, size, shared, monkeypatch):
    monkeypatch.setattr(views, "_prompts_per_pass", lambda _device, _widest: size)
    for found, expected in pairs(tiny_target(family), shared):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
