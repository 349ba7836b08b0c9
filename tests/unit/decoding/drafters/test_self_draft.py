"""Self-Draft: branches behind snippets, what is drafted from where, and a slow reference."""

import pytest
from pydantic import ValidationError

from specdec_core.config.window_drafters import SelfDraft
from specdec_core.decoding import (
    DraftBudget,
    DrafterContext,
    Proposal,
    StepOutcome,
    make_drafter,
)
from specdec_core.tree import TokenTree
from tests.datastores import make_datastore
from tests.doubles import path_tokens

WIDE = DraftBudget(1024, 64)
SMALL = {"branch_num": 2, "branch_len": 4, "context_ngram": 2, "prefix_len": 1}


def started(prompt=(22,), eos_ids=(), **options):
    drafter = make_drafter(
        SelfDraft(**(SMALL | options)), DrafterContext(eos_ids=frozenset(eos_ids))
    )
    begin(drafter, prompt)
    return drafter


def begin(drafter, prompt):
    drafter.reset(prompt)
    drafter.observe(StepOutcome(None, (), (1,)))


def step(drafter, root, best, committed):
    """Run one step in which `best` follow the drafting nodes, root first."""
    proposal = drafter.propose([0, root], WIDE)
    assert len(best) == len(proposal.drafting)
    rankings = [[token] for token in best]
    path = tuple(range(len(committed)))
    drafter.observe(StepOutcome(proposal, path, committed, drafting_top_k=rankings))


def fill(drafter):
    """Fill the branches 31, 41 and 32, 42, the second behind a snippet; the root is then 3."""
    step(drafter, 1, [0, 0, 31, 32], (2,))
    step(drafter, 2, [0, 0, 0, 0, 41, 42], (3,))


def drafts(drafter, *sequence, budget=WIDE):
    """Return the paths to the leaves of the candidate tree, in order."""
    tree = drafter.propose(sequence, budget).candidates
    leaves = sorted(set(range(1, len(tree))) - set(tree.parents))
    return [tuple(path_tokens(tree, leaf)[1:]) for leaf in leaves]


def test_branches_grow_one_level_per_step_and_lose_the_first():
    drafter = started()
    assert drafter.propose([1], WIDE).drafting == TokenTree((1, 22, 22, 22), (-1, 0, 0, 0))
    step(drafter, 1, [0, 30, 31, 32], (2,))
    assert drafter.propose([2], WIDE).drafting == TokenTree(
        (2, 22, 22, 30, 31, 32), (-1, 0, 0, 0, 1, 2)
    )
    step(drafter, 2, [0, 0, 0, 40, 41, 42], (3,))
    assert drafter.propose([3], WIDE).drafting == TokenTree(
        (3, 22, 31, 32, 41, 42), (-1, 0, 0, 1, 2, 3)
    )
    step(drafter, 3, [0, 0, 0, 0, 51, 52], (4,))
    assert drafter.propose([4], WIDE).drafting == TokenTree(
        (4, 32, 41, 42, 51, 52), (-1, 0, 0, 1, 2, 3)
    )


def test_nothing_is_verified_before_the_branches_are_full():
    drafter = started(prompt=[22, 5, 5, 5])
    step(drafter, 1, [0, 0, 31, 32], (2,))
    assert drafts(drafter, 5) == []
    step(drafter, 2, [0, 0, 0, 0, 41, 42], (3,))
    assert drafts(drafter, 5) == [(1, 2), (5, 1), (5, 5)]


def test_ngrams_of_branches_and_context_enter_the_pool():
    drafter = started()
    fill(drafter)
    # Root 3: 90, snippet 22: 91, 31: 92, 32: 93, 41: 94, 42: 95. The context is 22, 1, 2, 3.
    step(drafter, 3, [90, 91, 92, 93, 94, 95], (90,))
    assert drafts(drafter, 22) == [(32, 93), (1, 2)]
    assert drafts(drafter, 32) == [(42, 95)]
    assert drafts(drafter, 31) == [(41, 94)]
    assert drafts(drafter, 3) == [(31, 92)]
    assert drafts(drafter, 2) == [(3, 90)]
    assert drafts(drafter, 1) == [(2, 3)]
    assert drafts(drafter, 41) == drafts(drafter, 90) == []


def test_the_first_branch_continues_the_context():
    drafter = started(branch_len=4, context_ngram=3)
    fill(drafter)
    step(drafter, 3, [90, 91, 92, 93, 94, 95], (90, 80))
    # (1, 2, 3, best) and (2, 3, 31, best) begin in the context, (3, 31, 41, best) at the root.
    assert drafts(drafter, 2) == [(3, 90, 80), (3, 31, 92)]
    assert drafts(drafter, 1) == [(2, 3, 90)]
    assert drafts(drafter, 3) == [(31, 41, 94)]


def test_tokens_that_end_an_output_stay_in_ngrams_but_not_in_branches():
    drafter = started(prompt=[22, 95], eos_ids=[95])
    fill(drafter)
    step(drafter, 3, [90, 91, 92, 93, 94, 95], (4,))
    assert drafts(drafter, 32) == [(42, 95)]
    assert drafter.propose([4], WIDE).drafting.tokens == (4, 32, 41, 42, 94, 22)


def test_a_step_without_drafting_nodes_leaves_the_branches_as_they_are():
    drafter = started()
    before = drafter.propose([1], WIDE)
    drafter.observe(StepOutcome(Proposal(before.candidates), (0,), (2,)))
    assert drafter.propose([1], WIDE) == before


def test_the_budget_cuts_drafts_but_not_the_branches():
    drafter = started()
    fill(drafter)
    step(drafter, 3, [90, 91, 92, 93, 94, 95], (90,))
    for budget, expected in [((3, 9), [(32, 93), (1,)]), ((9, 1), [(32,), (1,)]), ((0, 9), [])]:
        assert drafts(drafter, 22, budget=DraftBudget(*budget)) == expected
        assert drafter.propose([22], DraftBudget(*budget)).num_drafting == 5


def test_a_new_request_begins_with_an_empty_pool():
    drafter = started()
    fill(drafter)
    begin(drafter, [22])
    fill(drafter)
    assert drafts(drafter, 22) == [(1, 2)]
    assert drafts(drafter, 2) == []


def test_the_warm_start_is_trimmed_before_every_second_request():
    def after(num_requests):
        drafter = started(prompt=[5, 6, 6, 5, 7, 7, 5, 8, 8], state_scope="run")
        for _ in range(num_requests):
            begin(drafter, [22])
        fill(drafter)
        return drafts(drafter, 5)

    assert after(0) == [(8, 8), (7, 7), (6, 6)]
    assert after(1) == [(8, 8), (7, 7)]

    drafter = started(prompt=[9], state_scope="run")
    begin(drafter, [5, 6, 6, 5, 7, 7, 5, 8, 8])
    begin(drafter, [22])  # the third request is not trimmed
    fill(drafter)
    assert drafts(drafter, 5) == [(8, 8), (7, 7), (6, 6)]


@pytest.fixture
def corpus(tmp_path):
    """Return a datastore; after 3 come 6 7 8 9 thrice, 5 5 5 5 twice, 4 4 4 4 once."""
    documents = [[1, 2, 3, 6, 7, 8, 9]] * 2 + [[9, 3, 6, 7, 8, 9], [3, 4, 4, 4, 4]]
    documents += [[2, 3, 5, 5, 5, 5]] * 2 + [[3, 6]] * 5
    return make_datastore(tmp_path / "store", documents)


def test_the_corpus_offers_its_frequent_ngrams_the_longest_key_first(corpus):
    drafter = started(prompt=[0], datastore=corpus)
    fill(drafter)
    # After 2, 3 both continuations occur twice, after 3 alone the first one thrice.
    assert drafts(drafter, 7, 2, 3) == [(5, 5, 5, 5), (6, 7, 8, 9)]
    assert drafts(drafter, 7, 7, 3) == [(6, 7, 8, 9), (5, 5, 5, 5)]
    assert drafts(drafter, 1, 2, 3) == [(6, 7, 8, 9), (5, 5, 5, 5)]
    assert drafts(drafter, 3)[0] == (6, 7, 8, 9)
    assert drafts(drafter, 70) == []


def test_rare_ngrams_of_the_corpus_are_drafts_on_demand(corpus):
    once = started(prompt=[0], datastore=corpus, min_count=1)
    fill(once)
    assert drafts(once, 7, 7, 3) == [(6, 7, 8, 9), (5, 5, 5, 5), (4, 4, 4, 4)]
    assert drafts(once, 9, 3) == [(6, 7, 8, 9), (5, 5, 5, 5), (4, 4, 4, 4)]
    thrice = started(prompt=[0], datastore=corpus, min_count=3)
    fill(thrice)
    assert drafts(thrice, 1, 2, 3) == [(6, 7, 8, 9)]


def test_the_context_comes_first_and_its_drafts_do_not_count_for_the_corpus(corpus):
    prompt = [3, 5, 5, 5, 5, 3, 1, 1, 1, 1, 0]
    options = {"branch_len": 5, "context_ngram": 4, "datastore": corpus, "min_count": 1}
    drafter = started(prompt=prompt, **options)
    step(drafter, 1, [0] * 5, (90,))
    step(drafter, 90, [0] * 8, (91,))
    step(drafter, 91, [0] * 9, (92,))
    # The context's own (1, 1, 1, 1) and (5, 5, 5, 5), then what the corpus has beside them.
    found = drafts(drafter, 7, 7, 3)
    assert found == [(1, 1, 1, 1), (5, 5, 5, 5), (6, 7, 8, 9), (4, 4, 4, 4)]


def test_needs_hold_all_drafts_and_the_widest_branches(corpus):
    needs = make_drafter(SelfDraft()).needs
    # Full: five snippets of two tokens and four levels of six; growing ones are smaller.
    assert (needs.max_nodes, needs.max_drafting, needs.rows, needs.top_k) == (40, 34, "none", 1)
    assert make_drafter(SelfDraft(datastore=corpus)).needs.max_nodes == 40 + 3 * 4


def test_options_without_effect_or_room_are_refused():
    with pytest.raises(ValidationError, match="context_ngram 4 does not fit on branches"):
        SelfDraft(branch_len=4)
    with pytest.raises(ValidationError, match="min_count has no effect without a datastore"):
        SelfDraft(min_count=5)
