"""Prompts read by the whole target, decoding by the sparse one: still that target's own output."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.model_drafters import LayerSkip
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.models.prompt_states import PromptStates
from specdec_core.models.tiny import FAMILIES, tiny_library_model, tiny_target
from specdec_core.skip import SkipConfig
from tests.conformance.test_drafters_on_models import CONFIGS, LIMIT, PROMPTS, VOCAB_SIZE
from tests.doubles import slow_greedy

HEADER = [4, 4, 1, 0, 2, 6, 5, 3, 3]


def library_output(family: str, prompt: list[int], skip: SkipConfig) -> list[int]:
    """Decode with the library's own model, the whole context anew for every token.

    Skipped halves add nothing behind the prompt.
    """
    model = tiny_library_model(family, seed=4, dtype="float64", vocab_size=VOCAB_SIZE)
    size = len(prompt)

    def cut(_module, _args, output):
        hidden = output[0] if isinstance(output, tuple) else output
        hidden[:, size:] = 0
        return output

    for number, layer in enumerate(model.model.layers):
        if skip.skips_attention(number):
            layer.self_attn.register_forward_hook(cut)
        if skip.skips_mlp(number):
            layer.mlp.register_forward_hook(cut)

    def logits_after(context: Sequence[int]) -> list[float]:
        with torch.no_grad():
            return model(torch.tensor([context]), use_cache=False).logits[0, -1].tolist()

    return slow_greedy(logits_after, prompt, LIMIT)


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_decoding_is_the_librarys_with_the_parts_taken_out_behind_the_prompt(family):
    target = tiny_target(family, seed=4, dtype="float64", vocab_size=VOCAB_SIZE)
    differs = False
    for text in ("0", "2", "a1,m2"):
        skip = SkipConfig.parse(text)
        for prompt in PROMPTS:
            found, sparse = (
                generate(
                    target.view(skip, prefill=prefill),
                    [prompt],
                    [make_drafter(NoDrafter())],
                    max_new_tokens=LIMIT,
                    eos_ids=(),
                )[0]
                for prefill in ("dense", "sparse")
            )
            assert list(found.token_ids) == library_output(family, prompt, skip)
            differs |= found.token_ids != sparse.token_ids
    assert differs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("skip", ["0", "a1", "m2", "0,a2"])
def test_every_drafter_leaves_the_output_that_of_plain_decoding(family, skip):
    target = tiny_target(family, seed=3, dtype="float64", vocab_size=VOCAB_SIZE)
    states = PromptStates(1 << 24)
    view = target.view(SkipConfig.parse(skip), prefill="dense", states=states)
    prompts = [[*HEADER, *prompt] for prompt in PROMPTS]
    context = DrafterContext(target, view=view)
    options = {"max_new_tokens": LIMIT, "eos_ids": (5,)}
    plain = [
        generate(view, [prompt], [make_drafter(NoDrafter())], **options)[0] for prompt in prompts
    ]
    num_accepted = 0
    for config in (*CONFIGS, LayerSkip(skip="m1", gamma=3)):
        results = generate(
            view,
            prompts,
            [make_drafter(config, context) for _ in prompts],
            prefix=view.build_prefix(HEADER),
            **options,
        )
        assert [r.token_ids for r in results] == [r.token_ids for r in plain]
        num_accepted += sum(sum(result.trace.accepted) for result in results)
    assert num_accepted > 0
