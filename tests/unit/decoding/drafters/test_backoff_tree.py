"""Back-off tree: which nodes are likeliest, worked by hand."""

from specdec_core.config.retrieval import BackoffTree
from specdec_core.decoding import DraftBudget, StepOutcome, make_drafter
from specdec_core.decoding.proposal import Proposal
from specdec_core.tree import TokenTree

WIDE = DraftBudget(1024, 64)


def prefilled(prompt, token, ranking, **options):
    drafter = make_drafter(BackoffTree(**{"max_ngram": 2, "num_free": 1024, **options}))
    drafter.reset(prompt)
    drafter.observe(StepOutcome(None, (), (token,), (prompt[-1],), [ranking]))
    return drafter


def test_a_repetition_becomes_a_chain_until_a_branch_is_likelier():
    # The prefill showed that two agreeing tokens were right once: (1 + 8 * 3/5) / 9 = 0.644 a step.
    # The chain's eighth token has chance 0.030, less than the second-ranked 5 after the first
    # 2: 0.644 ** 2 / 12 = 0.035.
    drafter = prefilled([1, 2, 3, 1, 2], 3, [3, 5], num_nodes=8)
    tree = drafter.propose([1, 2, 3, 1, 2, 3], WIDE).candidates
    assert tree == TokenTree((3, 1, 2, 3, 1, 2, 3, 1, 5), (-1, 0, 1, 2, 3, 4, 5, 6, 2))


def looped(**options):
    """Return the drafter after 7 5 7, where 5 was ranked before 6 and 4 after 7, 7 before 8."""
    drafter = prefilled([7], 5, [5, 6, 4], **options)
    alone = Proposal.nothing(5)
    drafter.observe(StepOutcome(alone, (0,), (7,), (5,), [[7, 8, 9]], (0,)))
    return drafter


def test_matches_and_rankings_share_one_tree():
    # After 7: 5 by the bigram 1/2, 6 by its rank 1/12. After 7 5: 7 by two tokens 3/5, and so on:
    # 5 .5, 7 .3, 5 .15, 7 .09, 6 .083, 5 .045, before 8 below the first 5 .042.
    tree = looped(num_nodes=6).propose([7, 5, 7], WIDE).candidates
    assert tree == TokenTree((7, 5, 7, 5, 7, 6, 5), (-1, 0, 1, 2, 3, 0, 4))


def test_the_budget_cuts_by_depth_and_by_nodes():
    drafter = looped(num_nodes=6)
    by_nodes = drafter.propose([7, 5, 7], DraftBudget(2, 9)).candidates
    assert by_nodes == TokenTree.chain(7, [5, 7])
    by_depth = drafter.propose([7, 5, 7], DraftBudget(9, 1)).candidates
    assert by_depth == TokenTree((7, 5, 6, 4), (-1, 0, 0, 0))
    assert drafter.propose([7, 5, 7], DraftBudget(0, 0)).candidates == TokenTree.root_only(7)


def test_nodes_beyond_the_free_ones_must_be_likely():
    # Their chances are .5, .3, .15, .09, .083: see above.
    def num_drafted(**options):
        tree = looped(num_nodes=9, **options).propose([7, 5, 7], WIDE).candidates
        return len(tree.tokens) - 1

    assert num_drafted(num_free=0, min_chance=0.6) == 0
    assert num_drafted(num_free=0, min_chance=0.3) == 2
    assert num_drafted(num_free=1, min_chance=0.1) == 3
    assert num_drafted(num_free=4, min_chance=0.3) == 4
    assert num_drafted(num_free=0, min_chance=0.0) == 9


def test_what_was_never_seen_is_not_drafted():
    drafter = prefilled([1], 2, [2, 3])
    assert drafter.propose([1, 2], WIDE).candidates == TokenTree.root_only(2)


def test_a_run_keeps_rankings_and_chances_but_no_ngrams():
    for scope, expected in (("prompt", ()), ("run", (5, 6, 4))):
        drafter = looped(state_scope=scope)
        drafter.reset([7])
        tree = drafter.propose([7], DraftBudget(9, 1)).candidates
        assert tuple(tree.tokens[1:]) == expected
