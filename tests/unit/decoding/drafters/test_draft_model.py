"""Draft models: contexts, vocabularies, and what a drafter needs to be made."""

import pytest

from specdec_core.config.model_drafters import DraftModel, DraftTree
from specdec_core.decoding import DraftBudget, DrafterContext, generate, make_drafter
from specdec_core.errors import ConfigError
from specdec_core.models.tiny import tiny_target
from tests.doubles import slow_greedy


def outputs(view, prompt, num):
    def logits_after(context):
        return view.prefill([context], view.new_cache(1, len(context)))[0].tolist()

    return slow_greedy(logits_after, prompt, num)


@pytest.mark.parametrize(
    "config", [DraftModel(model="x", gamma=4), DraftTree(model="x", branching=(2, 1, 1, 1))]
)
@pytest.mark.parametrize("prompt_tokens", [28, 31, 32, 33, 40])
def test_behind_the_drafts_context_decoding_goes_on_plainly(config, prompt_tokens):
    """A draft of 32 positions: n tokens leave 33 - n to draft, as the last is never run."""
    view = tiny_target("llama", vocab_size=16, max_position_embeddings=64).view()
    draft = tiny_target("llama", vocab_size=16, max_position_embeddings=32)
    context = DrafterContext(load_model=lambda _: draft, view=view)
    prompt = [(3 * i * i + i) % 16 for i in range(prompt_tokens)]
    (result,) = generate(
        view, [prompt], [make_drafter(config, context)], max_new_tokens=20, eos_ids=()
    )
    assert list(result.token_ids) == outputs(view, prompt, 20)
    length = prompt_tokens + 1
    for depth, committed in zip(result.trace.depth, result.trace.committed, strict=True):
        left = prompt_tokens + 20 - length - 1
        assert depth == max(0, min(4, left, 33 - length))
        length += committed


def test_drafted_ids_are_the_targets_even_if_the_draft_has_more():
    """The draft model is the target with two rows more in front of its argmax."""
    view = tiny_target("qwen2", seed=3, vocab_size=8).view()
    wide = tiny_target("qwen2", seed=4, vocab_size=10)
    context = DrafterContext(load_model=lambda _: wide, view=view)
    drafter = make_drafter(DraftTree(model="x", branching=(10, 10), num_nodes=200), context)
    drafter.reset([1, 2])
    tree = drafter.propose([1, 2, 3], DraftBudget(200, 9)).candidates
    assert sorted(tree.children(0)) == list(range(8))
    assert all(sorted(tree.children(node)) == list(range(8)) for node in tree.children(0).values())


def test_one_model_serves_all_requests_of_a_batch():
    loaded = []

    def load(reference):
        loaded.append(reference)
        return tiny_target("llama", seed=5, vocab_size=8)

    view = tiny_target("llama", vocab_size=8).view()
    context = DrafterContext(load_model=load, view=view)
    make_drafter(DraftModel(model="pypi:some"), context)
    assert loaded == ["pypi:some"]


def test_what_is_missing_is_named():
    with pytest.raises(ConfigError, match=r"'draft-model' drafts with the model 'x'.*load_model"):
        make_drafter(DraftModel(model="x"))
    draft = tiny_target("llama")
    with pytest.raises(ConfigError, match="'draft-tree' must know the view it drafts for"):
        make_drafter(DraftTree(model="x"), DrafterContext(load_model=lambda _: draft))
