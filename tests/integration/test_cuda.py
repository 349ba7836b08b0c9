"""The engine on a CUDA device: the same output with and without drafts, and as on the processor."""

import pytest
import torch

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.decoding import generate, make_drafter
from specdec_core.models.graphs import cuda_capture
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.tiny import FAMILIES, tiny_target
from specdec_core.skip import SkipConfig
from specdec_core.tree import TokenTree

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

PROMPTS = ([3], [1, 2, 3, 1, 2], [6, 0, 5, 5, 4, 2, 6, 0, 5, 1, 3])
DRAFTERS = (PromptLookup(), TokenRecycling(), TokenRecycling(update="path", num_nodes=12))


def decode(target, skip, config, prompts):
    results = generate(
        target.view(SkipConfig.parse(skip)),
        prompts,
        [make_drafter(config) for _ in prompts],
        max_new_tokens=24,
        eos_ids=(),
        synchronize=torch.cuda.synchronize,
    )
    return [result.token_ids for result in results]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("skip", ["", "a1"])
@pytest.mark.parametrize("dtype", ["float32", "float32-int8"])
@pytest.mark.parametrize("is_captured", [False, True])
def test_drafting_changes_no_token_alone_or_in_a_batch(family, skip, dtype, is_captured):
    options = {"seed": 0, "dtype": dtype, "vocab_size": 7}
    capture = cuda_capture(torch.device("cuda")) if is_captured else None
    target = tiny_target(family, device="cuda", capture=capture, **options)
    expected = [decode(target, skip, NoDrafter(), [prompt])[0] for prompt in PROMPTS]
    assert decode(tiny_target(family, **options), skip, NoDrafter(), PROMPTS) == expected
    for config in (NoDrafter(), *DRAFTERS):
        assert decode(target, skip, config, PROMPTS) == expected
        assert [decode(target, skip, config, [prompt])[0] for prompt in PROMPTS] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_those_of_the_processor(family):
    taps, tree = (HEAD_INPUT, 0, 2), TokenTree((4, 5, 6, 1), (-1, 0, 0, 1))
    found = []
    for device in ("cuda", "cpu"):
        view = tiny_target(family, dtype="float64", vocab_size=7, device=device).view()
        prefix = view.build_prefix(PROMPTS[1][:2], taps)
        cache = view.new_cache(1, 16)
        _, [prompt] = view.prefill_tapped([PROMPTS[1]], cache, taps, prefix)
        _, [nodes] = view.forward_tapped([tree], cache, taps)
        assert prompt.device.type == nodes.device.type == device
        found.append(torch.cat((prompt, nodes)).cpu())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
