"""Windows by their published rules: sizes, masks, positions, and the move to the next step."""

import numpy as np
import pytest

from specdec_core.decoding.drafting_window import (
    DraftingWindow,
    PromptTokens,
    most_drafting_nodes,
)

# Columns W, n-gram N: the paper's sizes and corners.
SIZES = [(15, 5), (10, 5), (7, 5), (3, 3), (2, 2), (5, 2), (2, 9)]


def lookahead_windows(num_columns, ngram):
    """Return the window before each of its first N forwards, with tokens all different."""
    tokens = iter(range(10_000))
    start = [[next(tokens)] for _ in range(num_columns + ngram - 3)]
    window = DraftingWindow(start, ngram - 2, is_chained=True)
    found = []
    for _ in range(ngram):
        found.append(
            DraftingWindow(
                [list(p) for p in window.prefixes],
                window.num_levels,
                is_chained=True,
                levels=[list(level) for level in window.levels],
            )
        )
        window.advance([next(tokens) for _ in window.columns(0)])
    return found


def sizes(window):
    return [len(window.prefixes), *map(len, window.levels)]


def test_the_window_fills_as_in_the_paper():
    windows = lookahead_windows(15, 5)
    assert [sizes(window) for window in windows] == [
        [17],
        [16, 17],
        [15, 16, 16],
        [14, 15, 15, 15],
        [14, 15, 15, 15],
    ]
    assert [window.is_full for window in windows] == [False, False, False, True, True]


@pytest.mark.parametrize(("num_columns", "overhead"), [(15, 59), (10, 39), (7, 27)])
def test_the_full_window_has_the_published_overhead(num_columns, overhead):
    tree = lookahead_windows(num_columns, 5)[-1].tree(0)
    assert tree.num_drafted == overhead == 4 * num_columns - 1


@pytest.mark.parametrize(("num_columns", "ngram"), SIZES)
def test_positions_and_masks_are_those_of_the_paper(num_columns, ngram):
    for window in lookahead_windows(num_columns, ngram):
        # Block 0 is the root and the prefixes, its entry 0 the root; block l > 0 is level l.
        cells = [(0, entry) for entry in range(len(window.prefixes) + 1)]
        for level, tokens in enumerate(window.levels, start=1):
            cells += [(level, entry) for entry in range(len(tokens))]

        def sees(row, column):
            (block, entry), (seen_block, seen_entry) = row, column
            if seen_block == 0:
                return seen_entry <= entry
            return seen_block <= block and seen_entry == entry

        tree = window.tree(0)
        assert tree.depths == tuple(block + entry for block, entry in cells)
        expected = [[sees(row, column) for column in cells] for row in cells]
        assert tree.ancestors().tolist() == expected
        assert len(window) == len(tree)


@pytest.mark.parametrize(("num_columns", "ngram"), SIZES)
def test_the_room_asked_for_is_the_widest_windows(num_columns, ngram):
    most = max(len(window) - 1 for window in lookahead_windows(num_columns, ngram))
    assert most_drafting_nodes(num_columns, ngram - 2) == most


def test_a_full_window_moves_on_by_one_token():
    window = DraftingWindow([[21], [22]], 1, is_chained=True, levels=[[31, 32, 33]])
    window.advance([41, 42, 43])
    assert (window.prefixes, window.levels) == ([[32], [33]], [[41, 42, 43]])


def test_a_window_without_levels_keeps_its_newest_tokens():
    window = DraftingWindow([[21], [22]], 0, is_chained=True)
    window.advance([41, 42, 43])
    assert (window.prefixes, window.levels) == ([[42], [43]], [])


def test_a_growing_window_drops_the_first_column():
    window = DraftingWindow([[21], [22], [23]], 2, is_chained=False)
    window.advance([40, 41, 42, 43])
    assert (window.prefixes, window.levels) == ([[22], [23]], [[41, 42, 43]])
    window.advance([50, 51, 52])
    assert (window.prefixes, window.levels) == ([[23]], [[42, 43], [51, 52]])


def test_branches_see_their_own_snippet_alone():
    window = DraftingWindow(
        [[11], [21, 22]], 2, is_chained=False, levels=[[1, 2, 3], [101, 102, 103]]
    )
    tree = window.tree(9)
    # In front of the root come its rows; each row lists the tokens that it sees.
    sights = {
        9: [9],
        11: [9, 11],
        21: [9, 21],
        22: [9, 21, 22],
        1: [9, 1],
        2: [9, 11, 2],
        3: [9, 21, 22, 3],
        101: [9, 1, 101],
        102: [9, 11, 2, 102],
        103: [9, 21, 22, 3, 103],
    }
    assert tree.tokens == tuple(sights)
    for token, row, depth in zip(tree.tokens, tree.ancestors(), tree.depths, strict=True):
        assert [seen for seen, is_seen in zip(sights, row, strict=True) if is_seen] == sights[token]
        assert depth == len(sights[token]) - 1
    columns = window.columns(9)
    assert [column.tokens for column in columns] == [
        (9, 1, 101),
        (11, 2, 102),
        (21, 22, 3, 103),
    ]
    for column in columns:
        assert tuple(tree.tokens[node] for node in column.nodes) == column.tokens


def test_snippets_move_down_their_branches_and_keep_their_lengths():
    window = DraftingWindow(
        [[11], [21, 22]], 2, is_chained=False, levels=[[1, 2, 3], [101, 102, 103]]
    )
    window.advance([201, 202, 203])
    assert window.prefixes == [[2], [22, 3]]
    assert window.levels == [[101, 102, 103], [201, 202, 203]]


def filler(prompt, eos_ids=()):
    return PromptTokens(prompt, frozenset(eos_ids), np.random.default_rng(5))


def test_random_tokens_are_the_prompts_without_those_that_end_an_output():
    assert set(filler([1, 2, 3, 2], eos_ids=[2]).pick(200)) == {1, 3}
    assert filler([4]).pick(3) == [4, 4, 4]
    assert filler([2, 2], eos_ids=[2]).pick(2) == [2, 2]
    assert filler([4]).pick(0) == []


def test_tokens_that_end_an_output_give_way_to_random_ones():
    assert filler([1], eos_ids=[2, 5]).replace_eos([2, 3, 5, 2]) == [1, 3, 1, 1]
