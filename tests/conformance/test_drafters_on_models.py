"""Every drafter on tiny random models of every family, in float64, against runs without a cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.config.ptd import Ptd
from specdec_core.config.retrieval import BackoffTree, SuffixAutomaton
from specdec_core.config.sampling import parse_sampling
from specdec_core.config.window_drafters import Lookahead, SelfDraft
from specdec_core.decoding import generate, make_drafter, replay
from specdec_core.models.tiny import FAMILIES, tiny_library_model, tiny_target
from specdec_core.models.view import TargetView
from specdec_core.skip import SkipConfig
from tests.doubles import GarbageDrafter, slow_greedy

VOCAB_SIZE = 7
LIMIT = 24
PROMPTS = ([3], [1, 2, 3, 1, 2], [6, 0, 5, 5, 4, 2, 6, 0, 5, 1, 3])
CONFIGS = (
    NoDrafter(),
    PromptLookup(),
    TokenRecycling(),
    TokenRecycling(update="path", num_nodes=12),
    BackoffTree(num_nodes=12),
    SuffixAutomaton(),
    SuffixAutomaton(fallback="none"),
    Lookahead(window=4, ngram=4, guesses=4),
    SelfDraft(branch_num=3, branch_len=4, context_ngram=3),
    Ptd(),
    Ptd(profile="paper", width=2, depth=3, candidates=16),
)


@cache
def dense_view(family: str, seed: int) -> TargetView:
    return tiny_target(family, seed=seed, dtype="float64", vocab_size=VOCAB_SIZE).view()


@cache
def library_outputs(family: str, seed: int) -> list[list[int]]:
    """Return plain outputs of the library's own model, the whole context anew per token."""
    model = tiny_library_model(family, seed=seed, dtype="float64", vocab_size=VOCAB_SIZE)

    def logits_after(context: Sequence[int]) -> list[float]:
        with torch.no_grad():
            return model(torch.tensor([context]), use_cache=False).logits[0, -1].tolist()

    return [slow_greedy(logits_after, prompt, LIMIT) for prompt in PROMPTS]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_output_is_the_librarys_own_alone_and_in_a_batch(family, seed, config):
    view, expected = dense_view(family, seed), library_outputs(family, seed)
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "num_top_k": 8}
    drafters = [make_drafter(config) for _ in PROMPTS]
    together = generate(view, PROMPTS, drafters, **options)
    assert [list(result.token_ids) for result in together] == expected
    for prompt, result in zip(PROMPTS, together, strict=True):
        (alone,) = generate(view, [prompt], [make_drafter(config)], **options)
        assert (alone.token_ids, alone.trace) == (result.token_ids, result.trace)
        if config.is_replayable:
            trace = replay(
                make_drafter(config),
                prompt,
                result.token_ids,
                result.top_k,
                max_new_tokens=LIMIT,
                vocab_size=VOCAB_SIZE,
            )
            assert trace == result.trace


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_outputs_are_those_of_plain_sampling_alone_and_in_a_batch(family):
    view = dense_view(family, 1)
    text = "temperature=1.3,top_p=0.95,repetition_penalty=1.2,seed=3,verification=match"
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "sampling": parse_sampling(text)}
    seeds = range(len(PROMPTS))
    plain = [
        generate(view, [prompt], [make_drafter(NoDrafter())], seeds=[seed], **options)[0]
        for seed, prompt in zip(seeds, PROMPTS, strict=True)
    ]
    assert len({result.token_ids for result in plain}) == len(PROMPTS)
    garbage = [GarbageDrafter(seed, VOCAB_SIZE) for seed in seeds]
    for drafters in (garbage, *([make_drafter(config) for _ in PROMPTS] for config in CONFIGS)):
        results = generate(view, PROMPTS, drafters, seeds=seeds, **options)
        assert [r.token_ids for r in results] == [r.token_ids for r in plain]


@pytest.mark.parametrize("family", FAMILIES)
def test_garbage_never_changes_the_output_of_a_model(family):
    view, expected = dense_view(family, 2), library_outputs(family, 2)
    drafters = [GarbageDrafter(seed, VOCAB_SIZE) for seed in range(len(PROMPTS))]
    results = generate(view, PROMPTS, drafters, max_new_tokens=LIMIT, eos_ids=())
    assert [list(result.token_ids) for result in results] == expected
    assert sum(sum(result.trace.accepted) for result in results) > 0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("skip", ["0", "a1", "m2"])
def test_sparse_views_write_their_own_output_with_stops_and_a_shared_prefix(family, skip):
    target = tiny_target(family, seed=3, dtype="float64", vocab_size=VOCAB_SIZE)
    view = target.view(SkipConfig.parse(skip))
    header = [4, 4, 1, 0, 2, 6, 5, 3, 3]
    prompts = [[*header, *prompt] for prompt in PROMPTS]

    def logits_after(context):
        return view.prefill([context], view.new_cache(1, len(context)))[0].tolist()

    expected = [slow_greedy(logits_after, prompt, LIMIT, (5,)) for prompt in prompts]
    for config in CONFIGS:
        results = generate(
            view,
            prompts,
            [make_drafter(config) for _ in prompts],
            max_new_tokens=LIMIT,
            eos_ids=(5,),
            prefix=view.build_prefix(header),
        )
        assert [list(result.token_ids) for result in results] == expected
