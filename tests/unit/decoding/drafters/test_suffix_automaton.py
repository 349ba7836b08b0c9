"""SAM-Decoding: the worked example, selection between sequence, datastore and fallback."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.config.retrieval import SuffixAutomaton
from specdec_core.decoding import DraftBudget, DrafterNeeds, StepOutcome, generate, make_drafter
from specdec_core.tree import TokenTree
from tests.datastores import make_datastore
from tests.doubles import table_view

WIDE = DraftBudget(1024, 64)
TEXT = [1, 2, 3, 4, 1, 2, 3]


def make(**options):
    return make_drafter(SuffixAutomaton(**options))


def propose(sequence, budget=WIDE, **options):
    drafter = make(**{"fallback": "none"} | options)
    drafter.reset(sequence)
    return drafter.propose(sequence, budget).candidates


@pytest.mark.parametrize(("root", "chain"), [(4, [1, 2, 3]), (2, [3, 4, 1]), (9, [])])
def test_what_followed_the_first_occurrence_is_drafted(root, chain):
    assert propose([*TEXT, root], num_tokens=3) == TokenTree.chain(root, chain)


def test_a_continuation_may_end_with_the_root_itself():
    assert propose([*TEXT, 4]) == TokenTree.chain(4, [1, 2, 3, 4])


def test_without_fallback_short_matches_are_drafted_from_carefully():
    sequence = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]
    assert propose(sequence) == TokenTree.chain(1, [2, 3, 4, 5])  # 4 for each matched token
    assert propose(sequence, alpha=2.5) == TokenTree.chain(1, [2, 3])
    assert propose([*sequence, 2]) == TokenTree.chain(2, [3, 4, 5, 6, 7, 8, 9, 1])


def test_matches_below_the_threshold_are_not_drafted_from():
    assert propose([*TEXT, 4], len_threshold=4).num_drafted == 4
    assert propose([*TEXT, 4], len_threshold=5).num_drafted == 0


@pytest.mark.parametrize("budget", [DraftBudget(2, 9), DraftBudget(9, 2)])
def test_a_chain_is_cut_to_the_budget(budget):
    assert propose([*TEXT, 4], budget) == TokenTree.chain(4, [1, 2])


def test_a_refined_match_gives_way_to_one_with_more_text_behind_it():
    # "1 2" was seen shortly ago, with 4 8 1 2 behind it; "2" at the very beginning.
    sequence = [3, 2, 5, 6, 0, 1, 2, 4, 8, 1, 2]
    assert propose(sequence, num_tokens=5) == TokenTree.chain(2, [4, 8, 1, 2])
    refined = propose(sequence, num_tokens=5, is_refined=True)
    assert refined == TokenTree.chain(2, [5, 6, 0, 1, 2])
    assert propose(sequence, num_tokens=4, is_refined=True) == TokenTree.chain(2, [4, 8, 1, 2])


class TestFallback:
    """Default options: token recycling where no match of five tokens is found."""

    def learned(self, prompt, **options):
        drafter = make(num_tokens=6, **options)
        drafter.reset(prompt)
        drafter.observe(StepOutcome(None, (), (0,), (4,), [[7, 8]]))
        return drafter

    def test_it_drafts_where_the_match_is_short(self):
        sequence = [1, 2, 3, 4, 1, 2, 3, 4]
        tree = self.learned(sequence).propose(sequence, WIDE).candidates
        assert tree == TokenTree((4, 7, 8), (-1, 0, 0))

    def test_a_long_match_is_drafted_whole(self):
        sequence = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
        tree = self.learned(sequence).propose(sequence, WIDE).candidates
        assert tree == TokenTree.chain(4, [0, 1, 2, 3, 4])
        longer = self.learned(sequence, len_threshold=6).propose(sequence, WIDE).candidates
        assert longer == TokenTree((4, 7, 8), (-1, 0, 0))

    @pytest.mark.parametrize(("scope", "num"), [("prompt", 0), ("run", 2)])
    def test_it_remembers_as_far_as_the_state_scope_says(self, scope, num):
        drafter = self.learned([4], state_scope=scope)
        drafter.reset([4])
        assert drafter.propose([4], WIDE).candidates.num_drafted == num

    def test_needs_are_those_of_both(self):
        needs = make(fallback_nodes=12, update="path").needs
        assert needs == DrafterNeeds(max_nodes=39, rows="path", top_k=8)
        assert make().needs == DrafterNeeds(max_nodes=80, rows="all", top_k=8)
        assert make(fallback="none").needs == DrafterNeeds(max_nodes=39)


class TestDatastore:
    """A match in a datastore counts where it is longer by more than the bias."""

    # Both know "1 2 3"; the store also what comes before, and two continuations of it.
    SEQUENCE = (1, 2, 3, 9, 7, 8, 1, 2, 3)
    STORE = ((6, 7, 8, 1, 2, 3, 4, 5), (0, 7, 8, 1, 2, 3, 4, 6), (8, 1, 2, 3, 0, 0))

    @pytest.fixture
    def folder(self, tmp_path):
        return make_datastore(tmp_path / "store", self.STORE)

    def propose(self, folder, budget=WIDE, **options):
        return propose(list(self.SEQUENCE), budget, datastore=folder, **options)

    def test_the_sequence_wins_ties(self, folder):
        # Matches: 3 tokens here, 5 there.
        own = TokenTree.chain(3, [9, 7, 8, 1, 2, 3])
        assert self.propose(folder, len_bias=2) == own
        assert self.propose(folder, len_bias=1) != own

    def test_the_most_frequent_continuations_are_drafted_as_a_tree(self, folder):
        tree = self.propose(folder, len_bias=1)
        assert tree == TokenTree((3, 4, 5, 6), (-1, 0, 1, 1))
        narrow = self.propose(folder, len_bias=1, static_width=1)
        assert narrow == TokenTree.chain(3, [4, 5])

    def test_nodes_are_limited_by_the_match_after_its_bias(self, folder):
        # 5 matched tokens less 1 make 4; half a node for each.
        tree = self.propose(folder, len_bias=1, alpha=0.5)
        assert tree == TokenTree.chain(3, [4, 5])

    def test_a_budget_cuts_the_tree(self, folder):
        assert self.propose(folder, DraftBudget(9, 1), len_bias=1) == TokenTree.chain(3, [4])
        assert self.propose(folder, DraftBudget(2, 9), len_bias=1) == TokenTree.chain(3, [4, 5])

    def test_with_a_fallback_one_chain_is_drafted(self, folder):
        options = {"fallback": "token-recycling", "len_bias": 0}
        assert self.propose(folder, **options) == TokenTree.chain(3, [4, 5])
        assert self.propose(folder, **options, len_threshold=6) == TokenTree.root_only(3)


def test_a_repeated_output_is_accepted_at_once():
    view = table_view({token: (token + 1) % 6 for token in range(6)}, 6)
    (result,) = generate(
        view, [[0, 1, 2, 3, 4, 5]], [make(fallback="none")], max_new_tokens=12, eos_ids=()
    )
    # Prefill 0. Root 0 was seen with 1 2 3 4 (four for one matched token), and the target adds 5;
    # root 5 ends a match of 6 tokens, with six tokens behind it, of which the limit leaves 5.
    assert result.trace.accepted == (4, 5)
    assert result.token_ids == (0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data())
def test_the_chain_follows_the_longest_match_however_the_sequence_grew(sequence, data):
    drafter = make(fallback="none", num_tokens=5)
    drafter.reset([3, 3, 1, 2, 3])  # a former request leaves no trace
    drafter.propose([3, 3, 1, 2, 3], WIDE)
    length = data.draw(st.integers(1, len(sequence)))
    drafter.reset(sequence[:length])
    while True:
        so_far = sequence[:length]
        expected = TokenTree.chain(so_far[-1], slow_chain(so_far, 5))
        assert drafter.propose(so_far, WIDE).candidates == expected
        assert drafter.propose(so_far, WIDE).candidates == expected
        if length == len(sequence):
            break
        length = min(len(sequence), length + data.draw(st.integers(1, 6)))


def slow_chain(sequence, num_tokens):
    """Return what follows the first occurrence of the longest suffix that occurs earlier."""
    for size in range(len(sequence) - 1, 0, -1):
        for end in range(size, len(sequence)):
            if sequence[end - size : end] == sequence[-size:]:
                return sequence[end : end + min(num_tokens, 4 * size)]
    return []
