"""Which hidden states a target has; their values are checked against the library's models."""

import pytest
import torch

from specdec_core.errors import ConfigError
from specdec_core.models.taps import HEAD_INPUT, check_taps
from specdec_core.models.tiny import tiny_target
from specdec_core.skip import SkipConfig
from specdec_core.tree import TokenTree


def test_there_is_one_more_stream_than_blocks_and_the_heads_input():
    check_taps([HEAD_INPUT, 0, 1, 2, 3], num_layers=3)
    with pytest.raises(
        ConfigError, match=r"\[4, -2\] were asked of a target with 3 blocks: it has"
    ):
        check_taps([0, 4, -2], num_layers=3)
    with pytest.raises(ConfigError, match=r"\[4\] were asked of a target with 3 blocks"):
        tiny_target("llama").view(SkipConfig.parse("0")).build_prefix([1], [4])


@pytest.mark.parametrize("skip", ["0", "1", "0,1", "2"])
def test_around_a_skipped_block_the_stream_is_the_same(skip):
    view = tiny_target("qwen3").view(SkipConfig.parse(skip))
    cache = view.new_cache(1, 9)
    _, (hidden,) = view.prefill_tapped([[1, 2, 3]], cache, range(4))
    _, after = view.forward_tapped([TokenTree.chain(4, [5])], cache, range(4))
    for states in (hidden, after[0]):
        for layer in range(3):
            is_same = torch.equal(states[:, layer], states[:, layer + 1])
            assert is_same == view.skip.skips_attention(layer)


@pytest.mark.parametrize("num_at_once", [4096, 4])
def test_states_of_a_long_prompt_do_not_depend_on_how_it_is_cut(num_at_once, monkeypatch):
    monkeypatch.setattr("specdec_core.models.view._PREFILL_TOKENS", num_at_once)
    view, taps = tiny_target("gemma3").view(), (2, HEAD_INPUT)
    prompts = [[*range(1, 12), *range(5)], [*range(1, 12), 7], [*range(1, 12), 0, 3, 1]]
    whole = []
    for prompt in prompts:
        cache = view.new_cache(1, 20)
        _, states = view.forward_tapped([TokenTree.chain(prompt[0], prompt[1:])], cache, taps)
        whole.append(states[0])
    for prefix in (None, view.build_prefix(range(1, 12), (HEAD_INPUT, 0, 2))):
        _, found = view.prefill_tapped(prompts, view.new_cache(3, 20), taps, prefix)
        for own, expected in zip(found, whole, strict=True):
            torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)
