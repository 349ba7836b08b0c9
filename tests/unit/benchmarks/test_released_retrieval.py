"""Restated releases that look things up, on sequences worked out by hand."""

import random

from benchmarks.released.prompt_lookup import ReleasedPromptLookup
from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.rest import ReleasedRest, keep
from benchmarks.released.suffix_automaton import ReleasedSamDecoding, match_lengths
from benchmarks.released.templates import eighty_nodes, fill, sixty_nodes
from benchmarks.released.token_recycling import ReleasedTokenRecycling
from specdec_core.decoding import DraftBudget, Proposal, StepOutcome
from specdec_core.retrieval.indexed_text import index_documents
from specdec_core.retrieval.suffix_automaton import Automaton
from specdec_core.tree import TokenTree
from specdec_core.tree.static_tree import StaticTree
from tests.doubles import ScriptedView, random_view

WIDE = DraftBudget(1024, 64)
SEQUENCE = [1, 2, 3, 4, 5, 2, 3, 9, 2, 3]


def row(*best):
    """Return a ranking of eight ids that begins with `best`."""
    return [*best, *range(90, 98)][:8]


def test_prompt_lookup_drafts_the_earliest_whole_continuation():
    # [2, 3] stands at 1 and at 5; two tokens follow the first, ten follow neither.
    assert ReleasedPromptLookup(3, 2).continuation(SEQUENCE) == [4, 5]
    # One n-gram must not be met by itself: [7, 7] at the end overlaps the match at 0.
    assert ReleasedPromptLookup(2, 1).continuation([7, 7, 7]) == [7]


def test_prompt_lookup_drafts_the_token_100_where_no_whole_continuation_is():
    assert ReleasedPromptLookup(3, 10).continuation(SEQUENCE) == [100]
    assert ReleasedPromptLookup(3, 2).continuation([1, 2, 3]) == [100]


def test_prompt_lookup_is_cut_to_what_may_be_written():
    proposal = ReleasedPromptLookup(3, 2).propose(SEQUENCE, DraftBudget(10, 1))
    assert proposal == Proposal.chain(3, [4])


def test_both_templates_have_the_published_nodes_per_depth():
    def per_depth(shape):
        return [shape.depths.count(depth) for depth in range(1, max(shape.depths) + 1)]

    assert per_depth(eighty_nodes()) == [8, 21, 25, 15, 8, 3]
    assert per_depth(sixty_nodes()) == [7, 20, 21, 8, 4]


def test_a_template_is_filled_breadth_first():
    shape = StaticTree.of([(0,), (1,), (0, 0), (0, 1), (0, 0, 0)])
    rows = {7: row(3, 5, 9), 3: row(5, 7, 2), 5: row(2, 3, 7)}
    assert fill(shape, 7, rows, WIDE) == TokenTree((7, 3, 5, 5, 7, 2), (-1, 0, 0, 1, 1, 3))
    assert fill(shape, 7, rows, DraftBudget(9, 1)) == TokenTree((7, 3, 5), (-1, 0, 0))


def test_what_follows_an_unknown_token_is_the_token_0_once():
    shape = StaticTree.of([(0,), (1,), (0, 0), (1, 0)])
    assert fill(shape, 7, {}, WIDE) == TokenTree((7, 0, 0), (-1, 0, 1))


def test_token_recycling_lets_the_last_node_of_a_token_win_and_forgets_nothing():
    drafter = ReleasedTokenRecycling(PromptPass(random_view(0, vocab_size=16)))
    tree = TokenTree((7, 5, 6, 5), (-1, 0, 0, 2))
    # The accepted path is 7, 5 (node 1), offered last; node 3 is the later one in the tree.
    outcome = StepOutcome(
        Proposal(tree), (0, 1), (5, 8), (6, 5, 7, 5), [row(1), row(2), row(3), row(4)], (2, 3, 0, 1)
    )
    drafter.observe(outcome)
    proposal = drafter.propose([9, 5], WIDE).candidates
    assert proposal.tokens[1:3] == (2, 90)
    drafter.reset([3, 4])
    assert drafter.propose([9, 5], WIDE).candidates.tokens[1] == 2


def test_token_recycling_learns_from_the_forward_behind_the_prompt():
    # The best successor of t is t + 1, then t + 2, .. (ids below 16).
    def logits_after(context):
        return [-((token - context[-1] - 1) % 16) for token in range(16)]

    drafter = ReleasedTokenRecycling(PromptPass(ScriptedView(logits_after, 16)))
    drafter.reset([3, 4])
    tree = drafter.propose([3, 4], WIDE).candidates
    assert tree.tokens[1:9] == (5, 6, 7, 8, 9, 10, 11, 12)
    # The tree forwarded behind the prompt held 4 and the placeholder 0 alone: 5 is unknown.
    assert [tree.tokens[node] for node in range(9, len(tree)) if tree.parents[node] == 1] == [0]


def test_matches_are_those_of_an_automaton():
    drawn = random.Random(0)
    for _ in range(200):
        tokens = [drawn.randrange(3) for _ in range(drawn.randrange(2, 30))]
        automaton = Automaton()
        automaton.feed(tokens[:-1])
        match = automaton.match(tokens[-1])
        ends = match_lengths(tokens)
        longest = max(ends.values(), default=0)
        assert longest == match.length
        if longest:
            assert min(end for end, num in ends.items() if num == longest) == match.end


def sam(num_tokens, threshold):
    return ReleasedSamDecoding(PromptPass(random_view(0)), num_tokens, threshold)


def test_sam_decoding_continues_the_first_occurrence_and_pads_with_the_token_0():
    text = [1, 2, 3, 4, 1, 2, 3]
    # The match 1, 2, 3, 4 ends at 4: three tokens follow it, and three are asked for.
    assert sam(4, 1).continuation([*text, 4]) == [1, 2, 3]
    assert sam(6, 1).continuation([*text, 4]) == [1, 2, 3, 0]
    assert sam(4, 5).continuation([*text, 4]) is None
    assert sam(4, 1).continuation([*text, 9]) is None


def test_sam_decoding_takes_a_shorter_match_with_enough_behind_it():
    # 1, 2 was seen at the end of 9, 1, 2 with one token behind it; 2 alone first with seven.
    sequence = [2, 5, 6, 7, 9, 1, 2, 8, 1, 2]
    assert match_lengths(sequence) == {1: 1, 7: 2}
    assert sam(4, 1).continuation(sequence) == [5, 6, 7]
    assert sam(2, 1).continuation(sequence) == [8]


def test_sam_decoding_falls_back_to_what_followed_every_prompt_token():
    def logits_after(context):
        return [-((token - context[-1] - 1) % 16) for token in range(16)]

    drafter = ReleasedSamDecoding(PromptPass(ScriptedView(logits_after, 16)))
    drafter.reset([3, 9, 4])
    assert drafter.propose([1, 9], WIDE).candidates.tokens[1:8] == (10, 11, 12, 13, 14, 15, 0)


def test_rest_drops_the_longest_of_what_it_kept():
    continuations = [(3, 9, 1), (3, 8, 1), (4, 5)]
    # Weights: (3) twice, all others once. Four are kept: (3), (4), (3, 8), (3, 9), with 1 + 1 + 2 +
    # 2 tokens; without the last there are four.
    assert keep(continuations, 4) == [(3,), (4,), (3, 8)]
    # A chain of three beginnings has 1 + 2 + 3 tokens.
    assert keep([(1, 2, 3)], 6) == [(1,), (1, 2), (1, 2, 3)]
    assert keep([(1, 2, 3)], 5) == [(1,), (1, 2)]
    # Repeated tokens count once: (1), (1, 1) and (1, 1, 1) are three in all.
    assert keep([(1, 1, 1)], 3) == [(1,), (1, 1), (1, 1, 1)]


def test_rest_looks_up_the_longest_suffix_or_drafts_the_token_100():
    store = index_documents([[5, 1, 2, 3], [9, 1, 2, 8, 7]])
    drafter = ReleasedRest(store, num_nodes=64, num_tokens=2)
    assert drafter.propose([9, 1, 2], WIDE) == Proposal.chain(2, [8, 7])
    tree = drafter.propose([4, 1, 2], WIDE).candidates
    assert tree == TokenTree((2, 3, 8, 7), (-1, 0, 0, 2))
    assert drafter.propose([4, 4, 2], WIDE) == Proposal.chain(2, [100])
