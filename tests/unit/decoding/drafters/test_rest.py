"""REST on the worked example, and what it does with budgets and without matches."""

import pytest

from specdec_core.config.retrieval import Rest
from specdec_core.decoding import DraftBudget, generate, make_drafter
from specdec_core.errors import ConfigError
from specdec_core.tree import TokenTree
from tests.datastores import make_datastore
from tests.doubles import table_view

STORE = [5, 1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 4, 5]
WIDE = DraftBudget(1024, 64)


def propose(folder, sequence, budget=WIDE, **options):
    drafter = make_drafter(Rest(datastore=folder, **options))
    drafter.reset(sequence)
    return drafter.propose(sequence, budget).candidates


@pytest.fixture
def folder(tmp_path):
    return make_datastore(tmp_path / "store", [STORE])


def test_the_heaviest_continuations_are_drafted(folder):
    tree = propose(folder, [7, 1, 2], num_tokens=3, num_nodes=4)
    assert tree == TokenTree((2, 3, 4, 8, 9), (-1, 0, 0, 1, 1))


def test_the_longest_suffix_decides(folder):
    assert propose(folder, [9, 1, 2], num_tokens=2) == TokenTree.chain(2, [3, 8])
    cut = propose(folder, [9, 1, 2], num_tokens=1, max_suffix=2)
    assert cut == TokenTree((2, 3, 4), (-1, 0, 0))


@pytest.mark.parametrize("sequence", [[2], [7, 2], [4, 5]])
def test_nothing_is_proposed_without_a_match_or_a_continuation(folder, sequence):
    assert propose(folder, sequence) == TokenTree.root_only(sequence[-1])


def test_one_token_is_enough_where_that_is_asked_for(folder):
    assert propose(folder, [7, 4], min_suffix=1) == TokenTree.chain(4, [5])


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (DraftBudget(2, 9), TokenTree((2, 3, 4), (-1, 0, 0))),
        (DraftBudget(9, 1), TokenTree((2, 3, 4), (-1, 0, 0))),
        (DraftBudget(0, 0), TokenTree.root_only(2)),
    ],
)
def test_the_budget_cuts_the_tree(folder, budget, expected):
    assert propose(folder, [7, 1, 2], budget) == expected


def test_ids_beyond_16_bits_are_kept_apart(tmp_path):
    # 65,537 and 1 are the same in 16 bits.
    folder = make_datastore(tmp_path / "store", [[65_537, 2, 3], [1, 2, 4]])
    assert propose(folder, [65_537, 2]) == TokenTree.chain(2, [3])
    assert propose(folder, [1, 2]) == TokenTree.chain(2, [4])


def test_what_the_target_says_too_is_accepted_at_once(tmp_path):
    folder = make_datastore(tmp_path / "store", [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]])
    view = table_view({token: (token + 1) % 12 for token in range(12)}, 12)
    drafter = make_drafter(Rest(datastore=folder, num_tokens=4))
    (result,) = generate(view, [[0]], [drafter], max_new_tokens=10, eos_ids=())
    # Prompt 0, prefill 1; then "0 1" finds 2 3 4 5 and the target adds 6, then 7 8 9 and 10.
    assert result.token_ids == tuple(range(1, 11))
    assert result.trace.accepted == (4, 3)


def test_a_missing_datastore_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"no datastore in .*nowhere"):
        make_drafter(Rest(datastore=str(tmp_path / "nowhere")))
