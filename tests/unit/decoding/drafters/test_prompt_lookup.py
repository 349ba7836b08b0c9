"""Prompt lookup on hand-made sequences and against the plain definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.config.drafters import PromptLookup
from specdec_core.decoding import DraftBudget, Proposal, StepOutcome, generate, make_drafter
from specdec_core.tree import TokenTree
from tests.doubles import table_view

WIDE = DraftBudget(128, 128)


def propose(sequence, budget=WIDE, **options):
    drafter = make_drafter(PromptLookup(**options))
    drafter.reset(sequence)
    return drafter.propose(sequence, budget).candidates


def scan(sequence, max_ngram, num_tokens):
    """Return the continuation by scanning for the most recent match, longest n-gram first."""
    for size in range(min(max_ngram, len(sequence) - 1), 0, -1):
        suffix = sequence[-size:]
        starts = [i for i in range(len(sequence) - size) if sequence[i : i + size] == suffix]
        if starts:
            return sequence[starts[-1] + size :][:num_tokens]
    return []


def test_the_most_recent_match_of_the_longest_ngram_is_continued():
    tree = propose([1, 2, 3, 4, 5, 2, 3, 9, 2, 3], num_tokens=4)
    assert tree == TokenTree.chain(3, [9, 2, 3])


@pytest.mark.parametrize("sequence", [[5], [1, 2, 3]])
def test_nothing_is_made_up_where_nothing_matches(sequence):
    assert propose(sequence) == TokenTree.root_only(sequence[-1])


@pytest.mark.parametrize("budget", [DraftBudget(2, 9), DraftBudget(9, 2)])
def test_a_continuation_is_cut_to_the_budget(budget):
    sequence = [1, 2, 3, 4, 5, 1]
    assert propose(sequence, budget) == TokenTree.chain(1, [2, 3])
    assert propose(sequence, num_tokens=1) == TokenTree.chain(1, [2])


def test_a_prompt_without_repeats_counts_as_steps_without_drafts():
    view = table_view({token: token + 1 for token in range(20)}, 21)
    drafter = make_drafter(PromptLookup())
    (result,) = generate(view, [[0]], [drafter], max_new_tokens=10, eos_ids=())
    assert result.trace.drafted == (0,) * 9
    assert sum(result.trace.committed) + 1 == 10


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.integers(1, 5),
    st.integers(1, 8),
    st.data(),
)
def test_the_table_finds_what_a_scan_finds_however_the_sequence_grew(
    sequence, max_ngram, num_tokens, data
):
    drafter = make_drafter(PromptLookup(max_ngram=max_ngram, num_tokens=num_tokens))
    drafter.reset([3, 3, 3, 1, 2])  # a former request leaves no trace
    length = data.draw(st.integers(1, len(sequence)))
    drafter.reset(sequence[:length])
    while True:
        so_far = sequence[:length]
        expected = TokenTree.chain(so_far[-1], scan(so_far, max_ngram, num_tokens))
        assert drafter.propose(so_far, WIDE).candidates == expected
        assert drafter.propose(so_far, WIDE).candidates == expected
        if length == len(sequence):
            break
        grown = min(len(sequence), length + data.draw(st.integers(1, 5)))
        drafter.observe(StepOutcome(Proposal(expected), (0,), tuple(sequence[length:grown])))
        length = grown
