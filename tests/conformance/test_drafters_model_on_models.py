"""Drafters with models of their own on tiny random targets of every family, in float64."""

from __future__ import annotations

from functools import cache

import pytest

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.model_drafters import DraftModel, DraftTree, LayerSkip, Synthetic
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.models.target import Target
from specdec_core.models.tiny import FAMILIES, tiny_target
from specdec_core.skip import SkipConfig
from tests.conformance.test_drafters_on_models import LIMIT, PROMPTS, dense_view, library_outputs
from tests.doubles import slow_greedy

# The targets have 7 ids; the draft models of other families, sizes and vocabularies.
DRAFTS = {"same": ("llama", 7), "short": ("gemma3", 6), "padded": ("qwen2", 10)}
CONFIGS = (
    DraftModel(model="same"),
    DraftModel(model="short", gamma=3),
    DraftModel(model="padded", gamma=12, min_confidence=0.3),
    DraftTree(model="same", branching=(3, 2, 1, 1)),
    DraftTree(model="short", num_nodes=20),
    DraftTree(model="padded", shape="dynamic", top_k=3, depth=3, num_nodes=9),
    LayerSkip(skip="1"),
    LayerSkip(skip="a0,m2", gamma=4, min_confidence=0.5),
    Synthetic(horizon=LIMIT),
)


@cache
def load_draft(name: str) -> Target:
    family, vocab_size = DRAFTS[name]
    return tiny_target(family, seed=9, vocab_size=vocab_size, num_layers=2)


def drafters_for(view, config, sampling=None, num=3):
    context = DrafterContext(load_model=load_draft, view=view, sampling=sampling or Sampling())
    return [make_drafter(config, context) for _ in range(num)]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_output_is_the_librarys_own_alone_and_in_a_batch(family, config):
    view, expected = dense_view(family, 0), library_outputs(family, 0)
    options = {"max_new_tokens": LIMIT, "eos_ids": ()}
    together = generate(view, PROMPTS, drafters_for(view, config), **options)
    assert [list(result.token_ids) for result in together] == expected
    (again,) = drafters_for(view, config, num=1)
    for prompt, result in zip(PROMPTS, together, strict=True):
        (alone,) = generate(view, [prompt], [again], **options)
        assert (alone.token_ids, alone.trace) == (result.token_ids, result.trace)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("skip", ["0", "a1", "m2"])
def test_sparse_views_write_their_own_output_with_stops_and_a_shared_prefix(skip, config):
    view = tiny_target("gemma3", seed=3, vocab_size=7, num_layers=4).view(SkipConfig.parse(skip))
    header = [4, 4, 1, 0, 2, 6, 5, 3, 3]
    prompts = [[*header, *prompt] for prompt in PROMPTS]

    def logits_after(context):
        return view.prefill([context], view.new_cache(1, len(context)))[0].tolist()

    expected = [slow_greedy(logits_after, prompt, LIMIT, (5,)) for prompt in prompts]
    results = generate(
        view,
        prompts,
        drafters_for(view, config),
        max_new_tokens=LIMIT,
        eos_ids=(5,),
        prefix=view.build_prefix(header),
    )
    assert [list(result.token_ids) for result in results] == expected


@pytest.mark.parametrize(
    "config",
    [
        DraftModel(model="padded", draft="greedy"),
        DraftModel(model="short", draft="coupled"),
        DraftTree(model="same", num_nodes=20),
        DraftTree(model="short", shape="dynamic", top_k=3, depth=2, draft="coupled"),
        LayerSkip(skip="2", draft="coupled"),
        Synthetic(horizon=LIMIT),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.5, seed=3),
        Sampling(temperature=0.7, top_k=4, top_p=0.9, seed=4),
        Sampling(temperature=1.0, repetition_penalty=1.3, presence_penalty=0.2, seed=5),
        Sampling(repetition_penalty=1.5),
    ],
    ids=str,
)
def test_chosen_candidates_leave_sampled_outputs_as_they_are(config, sampling):
    view, seeds = dense_view("qwen3", 1), [11, 12, 13]
    options = {"max_new_tokens": LIMIT, "eos_ids": (), "sampling": sampling, "seeds": seeds}
    plain = generate(view, PROMPTS, drafters_for(view, NoDrafter()), **options)
    found = generate(view, PROMPTS, drafters_for(view, config, sampling), **options)
    assert [g.token_ids for g in found] == [g.token_ids for g in plain]
    assert sum(sum(g.trace.accepted) for g in found) > 0


def skips_nothing(**options):
    """Options that nobody can ask for: the draft is the target itself."""
    return LayerSkip.model_construct(skip="", **options)


@pytest.mark.parametrize("draft", ["greedy", "sample", "coupled"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "method",
    [
        {"cls": DraftModel, "model": "itself", "gamma": 4},
        {"cls": DraftTree, "model": "itself", "branching": (2, 1, 1), "num_nodes": 6},
        {"cls": skips_nothing, "gamma": 4},
    ],
    ids=lambda method: method["cls"].__name__,
)
def test_the_target_as_its_own_draft_is_always_right(family, method, draft):
    """Every chain is accepted whole, so each step but the first has the lag of two tokens.

    Drawn candidates are accepted with min(1, p/q) = 1. Most likely ones are right where the
    target is greedy.
    """
    options = {key: value for key, value in method.items() if key != "cls"}
    config = method["cls"](**options, draft=draft)
    target = tiny_target(family, seed=1, vocab_size=7)
    view = target.view()
    is_greedy = draft == "greedy"
    sampling = Sampling() if is_greedy else Sampling(temperature=1.0, seed=6)
    context = DrafterContext(load_model=lambda _: target, view=view, sampling=sampling)
    results = generate(
        view,
        PROMPTS,
        [make_drafter(config, context) for _ in PROMPTS],
        max_new_tokens=LIMIT,
        eos_ids=(),
        sampling=sampling,
        seeds=[1, 2, 3],
    )
    for result in results:
        assert result.trace.accepted == result.trace.depth
        assert set(result.trace.depth[:-1]) == {4 if "gamma" in options else 3}
