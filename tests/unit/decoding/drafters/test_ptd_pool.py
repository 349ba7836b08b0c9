"""What the pool of Progressive Tree Drafting learns, and what it offers."""

import pytest

from specdec_core.decoding import (
    Proposal,
    StepOutcome,
)
from specdec_core.tree import TokenTree
from tests.doubles import path_tokens, random_view
from tests.unit.decoding.drafters.watched import (
    DRAFTS_ONLY,
    WIDE,
    as_nested,
    decode,
    drafted_paths,
    pool_paths,
    watched,
)
from tests.unit.decoding.progressive.notation import merged, paths, show, sub_trees


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("merge", ["before", "after"])
def test_the_pool_is_the_merge_of_all_sub_trees_of_every_forest(seed, merge):
    """Without stagger the drafting tree is the forest; the slow reference merges it whole."""
    drafter = watched(**DRAFTS_ONLY, stagger=False, merge=merge, width=2, depth=3)
    expected: dict[int, tuple] = {}

    def learn(nested):
        for sub_tree in sub_trees(nested):
            token = sub_tree[0]
            expected[token] = merged(expected.get(token, (token, [])), sub_tree)

    decode(random_view(seed, 8, order=3), drafter)
    if merge == "before":
        for outcome in drafter.outcomes[1:]:
            if outcome.drafting_top_k:
                for path in drafted_paths(outcome):
                    chain = (path[-1], [])
                    for token in path[-2::-1]:
                        chain = (token, [chain])
                    learn(chain)
    else:
        # The forest after a step is the one forwarded in the next.
        forests = [p.drafting for p in drafter.proposals[1:] if p.drafting is not None]
        last = drafter.drafter._forest.tree(0)
        for tree in [*forests, last]:
            for top in as_nested(tree)[1]:
                learn(top)
    wanted = {path for tree in expected.values() for path in paths(tree) if len(path) > 1}
    assert pool_paths(drafter.drafter) == wanted


@pytest.mark.parametrize("seed", range(6))
def test_every_pool_path_was_drafted_verified_or_written(seed):
    drafter = watched(width=3, depth=3, stagger=False)
    prompt = [1, 2, 3, 1]
    result = decode(random_view(seed, 8, order=2), drafter, prompt)
    text = [*prompt, *result.token_ids]
    known = {tuple(text[i:j]) for i in range(len(text)) for j in range(i + 2, len(text) + 1)}
    for outcome in drafter.outcomes[1:]:
        if outcome.drafting_top_k:
            known |= drafted_paths(outcome)
        tree = outcome.proposal.candidates
        for node, ranking in zip(outcome.row_nodes, outcome.top_k, strict=True):
            path = (*path_tokens(tree, node), ranking[0])
            known |= {path[i:j] for i in range(len(path)) for j in range(i + 2, len(path) + 1)}
    assert pool_paths(drafter.drafter) <= known
    assert sum(result.trace.accepted) > 0


@pytest.mark.parametrize(
    ("verified", "expected"),
    [
        ("off", {7: None, 3: None}),
        ("key", {7: "7(5(1) 3(9))", 3: None}),
        ("all", {7: "7(5(1) 3(9))", 3: "3(9)"}),
    ],
)
def test_verified_candidates_teach_the_pool(verified, expected):
    drafter = watched(verified=verified, confirm=False).drafter
    drafter.reset([7])
    tree = TokenTree((7, 3, 5), (-1, 0, 0))
    rows = [[3], [1], [9]]
    drafter.observe(StepOutcome(Proposal(tree), (0, 1), (3, 9), (7, 5, 3), rows, (0, 2, 1)))
    for token, text in expected.items():
        node = drafter._pool.find([token])
        assert (node and show(node)) == text


def test_the_output_is_confirmed_and_stays_what_a_request_remembers():
    drafter = watched(verified="off", depth=2).drafter
    drafter.reset([8, 4, 6, 7])
    drafter.observe(StepOutcome(None, (), (3,)))
    # Paths of at most two edges that end in the first output token.
    assert pool_paths(drafter) == {(6, 7), (6, 7, 3), (7, 3)}
    drafter.observe(StepOutcome(Proposal.nothing(3), (0,), (5,)))
    assert pool_paths(drafter) == {(6, 7), (6, 7, 3), (7, 3), (7, 3, 5), (3, 5)}
    assert drafter.propose([7], WIDE).candidates == TokenTree.chain(7, [3, 5])
    drafter.reset([8, 4, 6, 7])
    assert pool_paths(drafter) == set()


def test_the_prompt_is_confirmed_where_asked_for():
    drafter = watched(prefill=True, depth=2, eos_ids={0}).drafter
    drafter.reset([8, 4, 0, 6, 7])
    # Nothing follows the token that ends an output.
    assert pool_paths(drafter) == {(8, 4), (8, 4, 0), (4, 0), (6, 7)}


def test_a_prompt_lookup_steps_in_where_the_pool_knows_nothing():
    sequence = [1, 2, 3, 4, 1, 2]
    for fallback, expected in (("prompt-lookup", [3, 4, 1, 2]), ("none", [])):
        drafter = watched(fallback=fallback).drafter
        drafter.reset(sequence)
        proposal = drafter.propose(sequence, WIDE)
        assert proposal.candidates == TokenTree.chain(2, expected)
    assert watched(candidates=2).drafter.needs.max_nodes == 2
    short = watched(candidates=2).drafter
    short.reset(sequence)
    assert short.propose(sequence, WIDE).candidates == TokenTree.chain(2, [3, 4])
