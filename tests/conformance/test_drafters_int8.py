"""Drafters on targets with 8-bit weights: outputs are those of the rounded model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from specdec_core.config.drafters import DrafterConfig, NoDrafter, PromptLookup, TokenRecycling
from specdec_core.decoding import generate, make_drafter
from specdec_core.models.loading import load_target
from specdec_core.models.native.build import find_kernels
from specdec_core.models.quantization import Int8Weight
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import (
    FAMILIES,
    tiny_library_model,
    tiny_target,
    write_tiny_checkpoint,
)
from specdec_core.models.view import TargetView
from tests.doubles import slow_greedy

VOCAB_SIZE = 7
LIMIT = 24
PROMPTS = ([3], [1, 2, 3, 1, 2], [6, 0, 5, 5, 4, 2, 6, 0, 5, 1, 3])
CONFIGS = (NoDrafter(), PromptLookup(), TokenRecycling())


@cache
def library_outputs(family: str) -> list[list[int]]:
    """Return plain outputs of the library's model with its linear maps rounded, its head too."""
    model = tiny_library_model(family, vocab_size=VOCAB_SIZE)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            rounded = Int8Weight.of(module.weight.detach()).dequantized(torch.float64)
            # A new parameter: a tied embedding stays as it is.
            module.weight = torch.nn.Parameter(rounded)

    def logits_after(context: Sequence[int]) -> list[float]:
        with torch.no_grad():
            return model(torch.tensor([context]), use_cache=False).logits[0, -1].tolist()

    return [slow_greedy(logits_after, prompt, LIMIT) for prompt in PROMPTS]


def outputs(
    view: TargetView, prompts: Sequence[Sequence[int]], config: DrafterConfig
) -> list[list[int]]:
    drafters = [make_drafter(config) for _ in prompts]
    done = generate(view, prompts, drafters, max_new_tokens=LIMIT, eos_ids=())
    return [list(each.token_ids) for each in done]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_is_that_of_the_librarys_model_with_rounded_weights(family, config):
    view = tiny_target(family, dtype="float64-int8", vocab_size=VOCAB_SIZE).view()
    assert outputs(view, PROMPTS, config) == library_outputs(family)
    for prompt, expected in zip(PROMPTS, library_outputs(family), strict=True):
        assert outputs(view, [prompt], config) == [expected]


@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_kernels_draft_what_they_decode_plainly(family, tmp_path):
    if find_kernels() is None:
        pytest.skip("this machine cannot run the compiled kernels")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32}
    folder = write_tiny_checkpoint(tmp_path / "tiny", family, dtype="bfloat16", **sizes)
    model = resolve_model(f"path:{folder}", tmp_path / "cache")
    target = load_target(model, dtype="bfloat16-int8", device="cpu")
    assert target.engine is not None
    [*plain] = (outputs(target.view(), [prompt], NoDrafter()) for prompt in PROMPTS)
    for config in CONFIGS[1:]:
        assert outputs(target.view(), PROMPTS, config) == [each for [each] in plain]
