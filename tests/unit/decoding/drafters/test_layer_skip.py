"""Layer skipping: the whole target's cache is read, and left as it was."""

import pytest
import torch

from specdec_core.config.model_drafters import LayerSkip
from specdec_core.decoding import DraftBudget, DrafterContext, generate, make_drafter
from specdec_core.errors import CacheDesyncError, ConfigError
from specdec_core.models.tiny import FAMILIES, tiny_target
from specdec_core.models.view import TargetView
from specdec_core.skip import SkipConfig
from specdec_core.tree import TokenTree
from tests.doubles import slow_greedy

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


class KeepsCache(TargetView):
    """A view that keeps the last cache it made, to be looked into."""

    def new_cache(self, batch_size, capacity):
        self.cache = super().new_cache(batch_size, capacity)
        return self.cache


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("skip", ["1", "a0,m2"])
def test_committed_rows_are_the_dense_targets(family, skip):
    view = KeepsCache(tiny_target(family, seed=2), SkipConfig())
    drafter = make_drafter(LayerSkip(skip=skip), DrafterContext(view=view))
    (result,) = generate(view, [PROMPT], [drafter], max_new_tokens=30, eos_ids=())
    assert sum(result.trace.drafted) > 0
    plain = view.target.view()
    fresh = plain.new_cache(1, 64)
    plain.prefill([[*PROMPT, *result.token_ids[:-1]]], fresh)
    torch.testing.assert_close(view.cache.rows(0), fresh.rows(0), rtol=1e-9, atol=1e-9)


def test_drafts_are_the_sparse_layers_on_dense_rows():
    """Against the sparse view alone, its cache filled with the dense rows of every token."""
    target = tiny_target("qwen3", seed=3)
    skip = SkipConfig.parse("0")
    view, sparse = target.view(), target.view(skip)
    drafter = make_drafter(LayerSkip(skip="0", gamma=5), DrafterContext(view=view))

    def logits_after(context):
        """Dense rows for all of PROMPT, sparse ones for what is drafted behind 7."""
        dense = view.new_cache(1, 32)
        view.prefill([PROMPT], dense)
        cache = sparse.new_cache(1, 32)
        cache.load_prefix(dense.export_prefix()[:, [1, 2]])
        chain = TokenTree.chain(context[0], context[1:])
        return sparse.forward([chain], cache)[0, -1].tolist()

    expected = slow_greedy(logits_after, [7], 5)
    cache = view.new_cache(1, 32)
    view.prefill([PROMPT], cache)
    drafter.reset(PROMPT)
    drafter.borrow(cache.narrow(0, 1))
    tree = drafter.propose([*PROMPT, 7], DraftBudget(64, 64)).candidates
    assert tree.tokens == (7, *expected)
    # The target goes on as if nothing had been written behind its rows.
    fresh = view.new_cache(1, 32)
    view.prefill([PROMPT], fresh)
    assert torch.equal(view.forward([tree], cache), view.forward([tree], fresh))


def test_a_batch_lends_each_request_its_own_rows():
    view = tiny_target("llama", seed=4, vocab_size=7).view()
    prompts = [[1], [2, 3, 4, 5, 6], [5, 5, 5]]
    context = DrafterContext(view=view)
    drafters = [make_drafter(LayerSkip(skip="2"), context) for _ in prompts]
    together = generate(view, prompts, drafters, max_new_tokens=17, eos_ids=(3,))
    for prompt, result in zip(prompts, together, strict=True):
        drafter = make_drafter(LayerSkip(skip="2"), context)
        (alone,) = generate(view, [prompt], [drafter], max_new_tokens=17, eos_ids=(3,))
        assert (alone.token_ids, alone.trace) == (result.token_ids, result.trace)


def test_the_cache_is_given_back_with_the_step():
    view = tiny_target("llama").view()
    drafter = make_drafter(LayerSkip(skip="1"), DrafterContext(view=view))
    (result,) = generate(view, [PROMPT], [drafter], max_new_tokens=9, eos_ids=())
    with pytest.raises(CacheDesyncError, match="or lend it the target's cache"):
        drafter.propose([*PROMPT, *result.token_ids], DraftBudget(8, 8))


def test_options_are_checked_against_the_target():
    view = tiny_target("llama").view()
    with pytest.raises(ConfigError, match="layers 0 to 2"):
        make_drafter(LayerSkip(skip="7"), DrafterContext(view=view))
    with pytest.raises(ConfigError, match="'layer-skip' must know the view"):
        make_drafter(LayerSkip(skip="1"))
