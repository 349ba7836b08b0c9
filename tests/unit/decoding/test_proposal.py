"""Candidates and drafting nodes in one forward."""

from specdec_core.decoding import DrafterNeeds, Proposal, generate
from specdec_core.tree import TokenTree
from tests.doubles import ChainDrafter, random_view, slow_greedy, slow_ranking


def test_the_forward_tree_is_candidates_then_drafting_nodes_under_one_root():
    candidates = TokenTree((5, 6, 7), (-1, 0, 1))
    drafting = TokenTree((5, 6, 8, 9), (-1, 0, 0, 2))
    proposal = Proposal(candidates, drafting)
    joined = proposal.forward_tree()
    assert joined == TokenTree((5, 6, 7, 6, 8, 9), (-1, 0, 1, 0, 0, 4))
    assert joined.depths == (0, 1, 2, 1, 1, 2)
    assert proposal.drafting_rows() == (0, 3, 4, 5)
    assert proposal.num_drafting == 3


def test_nothing_rides_along_without_drafting_nodes():
    for drafting in (None, TokenTree.root_only(5)):
        proposal = Proposal(TokenTree.chain(5, [6]), drafting)
        assert proposal.forward_tree() == TokenTree.chain(5, [6])
        assert (proposal.drafting_rows(), proposal.num_drafting) == ((), 0)


class Rides(ChainDrafter):
    """Sends two columns along: one token after the root, and two after another."""

    def propose(self, sequence, budget):
        proposal = super().propose(sequence, budget)
        root = sequence[-1]
        return Proposal(proposal.candidates, TokenTree((root, 1, 2, 1), (-1, 0, 0, 2)))


def test_drafting_nodes_see_their_ancestors_alone_and_never_reach_the_output():
    view = random_view(seed=4, vocab_size=6, order=3)
    needs = DrafterNeeds(max_nodes=4, max_drafting=3, top_k=2)
    drafters = [Rides(lambda s: [s[0], 1], needs), ChainDrafter(lambda s: [0, 1, 2])]
    prompts = [[3, 1], [2]]
    results = generate(view, prompts, drafters, max_new_tokens=12, eos_ids=())
    for prompt, result in zip(prompts, results, strict=True):
        assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, 12)
    assert results[1].trace.drafting == ()
    assert sum(results[0].trace.accepted) > 0
    sequence = list(prompts[0])
    for outcome in drafters[0].outcomes:
        if outcome.proposal is not None:
            contexts = [[], [1], [2], [2, 1]]
            rows = [slow_ranking(view.logits_after([*sequence, *own]), 2) for own in contexts]
            expected = rows if outcome.proposal.num_drafting else []
            assert list(outcome.drafting_top_k) == expected
            assert outcome.row_tokens == ()
        sequence.extend(outcome.committed)
    assert 3 in results[0].trace.drafting


class RidesDeep(ChainDrafter):
    """Proposes nothing and sends a chain of four along."""

    def propose(self, sequence, budget):
        root = sequence[-1]
        return Proposal(TokenTree.root_only(root), TokenTree.chain(root, [1, 2, 1, 2]))


def test_drafting_nodes_behind_the_last_position_are_left_out():
    view = random_view(seed=1, vocab_size=6, order=2)
    view.max_positions = 10
    drafter = RidesDeep(lambda s: [], DrafterNeeds(max_nodes=1, max_drafting=4, top_k=1))
    prompt = [3, 1, 2, 2, 1]
    (result,) = generate(view, [prompt], [drafter], max_new_tokens=5, eos_ids=())
    assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, 5)
    # The root is token 6, 7, 8, 9: four more tokens end at position 10 once, then behind it.
    assert result.trace.drafting == (4, 0, 0, 0)
