"""Drafters that want hidden states on tiny models of every family, and what they are shown."""

from __future__ import annotations

import pytest
import torch

from specdec_core.decoding import generate
from specdec_core.errors import ConfigError
from specdec_core.models.taps import HEAD_INPUT
from specdec_core.models.tiny import FAMILIES, tiny_library_model, tiny_target
from specdec_core.skip import SkipConfig
from tests.conformance.test_drafters_on_models import (
    LIMIT,
    PROMPTS,
    VOCAB_SIZE,
    dense_view,
    library_outputs,
)
from tests.doubles import slow_greedy
from tests.feature_drafters import BlockDrafter, DecoyDrafter, HeadsDrafter, Sizes

TAPS = (HEAD_INPUT, 0, 2, 3, 1)
MANY_IDS = 32  # outputs of few ids soon repeat one
HEADER = [4, 4, 1, 0, 2, 6, 5, 3, 3]
# The library computes rotary tables and norms in float32.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def drafters_for(view, kind, num=3):
    sizes = Sizes(view.target.arch.hidden_size, view.vocab_size)
    return [kind(sizes) for _ in range(num)]


@pytest.mark.parametrize("kind", [HeadsDrafter, BlockDrafter])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_is_the_librarys_own_alone_and_in_a_batch(family, kind):
    view, expected = dense_view(family, 0), library_outputs(family, 0)
    options = {"max_new_tokens": LIMIT, "eos_ids": ()}
    together = generate(view, PROMPTS, drafters_for(view, kind), **options)
    assert [list(result.token_ids) for result in together] == expected
    for prompt, result in zip(PROMPTS, together, strict=True):
        (alone,) = generate(view, [prompt], drafters_for(view, kind, 1), **options)
        assert (alone.token_ids, alone.trace) == (result.token_ids, result.trace)


@pytest.mark.parametrize("kind", [HeadsDrafter, BlockDrafter])
def test_untrained_drafters_are_right_and_wrong_now_and_then(kind):
    rejected = accepted = 0
    for family in FAMILIES:
        view = dense_view(family, 0)
        for result in generate(
            view, PROMPTS, drafters_for(view, kind), max_new_tokens=LIMIT, eos_ids=()
        ):
            pairs = list(zip(result.trace.depth, result.trace.accepted, strict=True))
            accepted += sum(num for _, num in pairs)
            rejected += sum(depth > num for depth, num in pairs)
    assert min(accepted, rejected) > 20


@pytest.mark.parametrize("kind", [HeadsDrafter, BlockDrafter])
@pytest.mark.parametrize("skip", ["0", "a1", "m2"])
@pytest.mark.parametrize("family", FAMILIES)
def test_sparse_views_write_their_own_output_with_stops_and_a_shared_prefix(family, skip, kind):
    target = tiny_target(family, seed=3, vocab_size=VOCAB_SIZE)
    view = target.view(SkipConfig.parse(skip))
    prompts = [[*HEADER, *prompt] for prompt in PROMPTS]

    def logits_after(context):
        return view.prefill([context], view.new_cache(1, len(context)))[0].tolist()

    expected = [slow_greedy(logits_after, prompt, LIMIT, (5,)) for prompt in prompts]
    options = {"max_new_tokens": LIMIT, "eos_ids": (5,)}
    drafters = drafters_for(view, kind)
    prefix = view.build_prefix(HEADER, drafters[0].needs.taps)
    shared = generate(view, prompts, drafters, prefix=prefix, **options)
    assert [list(result.token_ids) for result in shared] == expected
    plain = generate(view, prompts, drafters_for(view, kind), **options)
    assert [result.trace for result in plain] == [result.trace for result in shared]


def library_states(family, skip, tokens):
    """Return hidden states [tokens, T * hidden] at TAPS, from one run of the library's model.

    A half whose output projection is zero adds nothing to the residual stream.
    """
    model = tiny_library_model(family, seed=4, vocab_size=MANY_IDS)
    silent = SkipConfig.parse(skip)
    for layer, block in enumerate(model.model.layers):
        skipped = [block.self_attn.o_proj] if silent.skips_attention(layer) else []
        skipped += [block.mlp.down_proj] if silent.skips_mlp(layer) else []
        for projection in skipped:
            torch.nn.init.zeros_(projection.weight)
            if projection.bias is not None:
                torch.nn.init.zeros_(projection.bias)
    behind_last = []
    model.model.layers[-1].register_forward_hook(lambda *args: behind_last.append(args[-1]))
    with torch.no_grad():
        found = model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    states = list(found.hidden_states)
    last = behind_last[0][0] if isinstance(behind_last[0], tuple) else behind_last[0]
    # The library's list has the head's input in place of the stream behind the last block.
    by_tap = {**dict(enumerate(states[:-1])), len(states) - 1: last, HEAD_INPUT: states[-1]}
    return torch.cat([by_tap[tap].reshape(len(tokens), -1) for tap in TAPS], 1)


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("has_prefix", [False, True], ids=["plain", "prefix"])
@pytest.mark.parametrize("skip", ["", "1", "a0,m2"], ids=["dense", "block", "halves"])
@pytest.mark.parametrize("family", FAMILIES)
def test_hidden_states_are_the_librarys_own(family, skip, has_prefix, batch_size):
    view = tiny_target(family, seed=4, vocab_size=MANY_IDS).view(SkipConfig.parse(skip))
    prompts = [[*HEADER, *prompt] for prompt in PROMPTS[:batch_size]]
    prefix = view.build_prefix(HEADER, sorted(TAPS)) if has_prefix else None

    def logits_after(context):
        return view.prefill([context], view.new_cache(1, len(context)))[0].tolist()

    outputs = [slow_greedy(logits_after, prompt, LIMIT) for prompt in prompts]
    # Two, one and no token per step are accepted, so that requests end one after the other.
    drafters = [
        DecoyDrafter(output, 2 - index, MANY_IDS, TAPS) for index, output in enumerate(outputs)
    ]
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "prefix": prefix}
    results = generate(view, prompts, drafters, **options)
    for prompt, output, drafter, result in zip(prompts, outputs, drafters, results, strict=True):
        assert list(result.token_ids) == output
        prefill, *steps = drafter.outcomes
        assert prefill.hidden.shape[0] == len(prompt)
        for step in steps:
            assert step.hidden.shape[0] == len(step.path) == len(step.committed)
        found = torch.cat([outcome.hidden for outcome in drafter.outcomes])
        expected = library_states(family, skip, [*prompt, *output[:-1]])
        torch.testing.assert_close(found, expected, **TOLERANCE)
    # Accepted paths really skip nodes, by different lengths.
    assert [max(len(o.path) for o in d.outcomes) for d in drafters] == [3, 2, 1][:batch_size]
    assert (0, 2, 4) in {outcome.path for outcome in drafters[0].outcomes}


def test_a_prefix_without_the_wanted_states_is_refused_before_anything_is_decoded():
    view = dense_view("llama", 0)
    (drafter,) = drafters_for(view, BlockDrafter, 1)
    for taps in ((), (0, 1, HEAD_INPUT)):
        with pytest.raises(
            ConfigError, match=r"\[.*2.*\] are wanted .* build the prefix with taps"
        ):
            generate(
                view,
                [[*HEADER, 1]],
                [drafter],
                max_new_tokens=4,
                eos_ids=(),
                prefix=view.build_prefix(HEADER, taps),
            )


def test_drafters_of_one_batch_may_want_different_states_or_none():
    view = dense_view("qwen3", 0)
    mixed = [DecoyDrafter([], 1, VOCAB_SIZE, taps) for taps in ((2, 0), (), (HEAD_INPUT, 2))]
    same = [DecoyDrafter([], 1, VOCAB_SIZE, (0, 2, HEAD_INPUT)) for _ in mixed]
    for drafters in (mixed, same):
        generate(view, [PROMPTS[2]] * 3, drafters, max_new_tokens=4, eos_ids=())
    for own, all_of_it in zip(mixed[0].outcomes, same[0].outcomes, strict=True):
        low, middle, _ = all_of_it.hidden.chunk(3, 1)
        torch.testing.assert_close(own.hidden, torch.cat((middle, low), 1))
    assert all(outcome.hidden is None for outcome in mixed[1].outcomes)
    for own, all_of_it in zip(mixed[2].outcomes, same[2].outcomes, strict=True):
        _, middle, top = all_of_it.hidden.chunk(3, 1)
        torch.testing.assert_close(own.hidden, torch.cat((top, middle), 1))
