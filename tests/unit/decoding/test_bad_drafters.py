"""Drafters that break their contract are named; ones that only guess badly change nothing."""

import pytest

from specdec_core.decoding import DrafterNeeds, Proposal, generate
from specdec_core.errors import ConfigError
from specdec_core.tree import TokenTree
from tests.doubles import ChainDrafter, GarbageDrafter, random_view, slow_greedy, table_view


class Proposes(ChainDrafter):
    """Proposes one fixed tree whatever the budget."""

    def propose(self, sequence, budget):
        return Proposal(self.continuation(sequence))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (lambda s: TokenTree((s[-1], 1, 1), (-1, 0, 0)), "siblings with the same token"),
        (lambda s: TokenTree.chain(s[-1], [10]), "token id 10, but the target has ids 0 to 9"),
        (lambda s: TokenTree.chain(s[-1], [-1]), "token id -1"),
        (lambda s: TokenTree.chain(9, [1]), "root 9: .* last token of the sequence, 0"),
        (lambda s: TokenTree.chain(s[-1], range(1, 8)), "7 nodes of depth 7 for DraftBudget"),
        (lambda s: TokenTree((s[-1], *range(65)), (-1, *[0] * 65)), "65 nodes of depth 1"),
    ],
)
def test_a_broken_contract_names_the_drafter(tree, message):
    view = table_view({}, 10)
    with pytest.raises(ConfigError, match=f"drafter Proposes proposed .*{message}"):
        generate(view, [[3]], [Proposes(tree)], max_new_tokens=8, eos_ids=())


class Rides(ChainDrafter):
    """Proposes nothing and sends one fixed tree along."""

    def propose(self, sequence, budget):
        return Proposal(TokenTree.root_only(sequence[-1]), self.continuation(sequence))


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (lambda s: TokenTree.chain(s[-1], [1, 2, 3]), "3 drafting nodes .* at most 2"),
        (lambda s: TokenTree.chain(9, [1]), "under the root 9: .* under the last token 0"),
        (lambda s: TokenTree.chain(s[-1], [10]), "token id 10, but the target has ids 0 to 9"),
    ],
)
def test_drafting_nodes_keep_their_contract_too(tree, message):
    drafter = Rides(tree, DrafterNeeds(max_nodes=1, max_drafting=2, top_k=1))
    with pytest.raises(ConfigError, match=f"drafter Rides .*{message}"):
        generate(table_view({}, 10), [[3]], [drafter], max_new_tokens=8, eos_ids=())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("batch_size", [1, 3])
def test_garbage_never_changes_the_output(seed, batch_size):
    vocab_size = 3 + seed % 4
    view = random_view(seed, vocab_size, order=1 + seed % 3, has_ties=seed % 2 == 0)
    prompts = [[(seed + i + j) % vocab_size for j in range(1 + i)] for i in range(batch_size)]
    eos_ids = [seed % vocab_size] if seed % 3 else []
    drafters = [GarbageDrafter(seed + i, vocab_size) for i in range(batch_size)]
    results = generate(view, prompts, drafters, max_new_tokens=15, eos_ids=eos_ids)
    for prompt, result in zip(prompts, results, strict=True):
        expected = slow_greedy(view.logits_after, prompt, 15, eos_ids)
        assert list(result.token_ids) == expected
        assert 1 + sum(result.trace.committed) == len(expected)
