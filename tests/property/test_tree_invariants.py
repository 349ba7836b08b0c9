"""Random token trees against definitions written out by hand."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.decoding.verify import follow, match_greedy
from specdec_core.tree import TokenTree
from tests.doubles import path_tokens


@st.composite
def trees(draw, vocab_size: int = 4) -> TokenTree:
    """Trees of up to 16 nodes with distinct siblings."""
    tokens, parents = [draw(st.integers(0, vocab_size - 1))], [-1]
    used = set()
    for _ in range(draw(st.integers(0, 15))):
        parent = draw(st.integers(0, len(tokens) - 1))
        token = draw(st.integers(0, vocab_size - 1))
        if (parent, token) not in used:
            used.add((parent, token))
            tokens.append(token)
            parents.append(parent)
    return TokenTree(tuple(tokens), tuple(parents))


def ancestor_set(tree: TokenTree, node: int) -> set[int]:
    found = set()
    while node >= 0:
        found.add(node)
        node = tree.parents[node]
    return found


@given(trees())
def test_rows_of_the_matrix_are_ancestor_sets_and_depths_their_size(tree):
    matrix = tree.ancestors()
    for node in range(len(tree)):
        expected = ancestor_set(tree, node)
        assert set(matrix[node].nonzero()[0].tolist()) == expected
        assert tree.depths[node] == len(expected) - 1
    tree.validate(4)


@given(trees(), st.lists(st.integers(0, 3), min_size=16, max_size=16))
def test_a_greedy_match_is_the_longest_path_the_choices_spell(tree, choices):
    path, bonus = match_greedy(tree, choices)

    def is_spelt(node: int) -> bool:
        return node == 0 or (
            choices[tree.parents[node]] == tree.tokens[node] and is_spelt(tree.parents[node])
        )

    longest = max(
        (node for node in range(len(tree)) if is_spelt(node)), key=tree.depths.__getitem__
    )
    assert set(path) == ancestor_set(tree, longest)
    assert list(path) == sorted(path)
    assert bonus == choices[longest]


@given(trees(), st.lists(st.integers(0, 3), min_size=16, max_size=16), st.data())
def test_leaves_taken_away_never_lengthen_a_match(tree, choices, data):
    kept = len(tree) - data.draw(st.integers(0, tree.num_drafted))
    smaller = TokenTree(tree.tokens[:kept], tree.parents[:kept])
    assert len(match_greedy(smaller, choices)[0]) <= len(match_greedy(tree, choices)[0])


@given(trees(), st.lists(st.integers(0, 3), max_size=6))
def test_follow_finds_the_longest_prefix_spelt_by_any_node(tree, continuation):
    path = follow(tree, continuation)
    spelt = {tuple(path_tokens(tree, node)[1:]) for node in range(len(tree))}
    longest = max(k for k in range(len(continuation) + 1) if tuple(continuation[:k]) in spelt)
    assert len(path) - 1 == longest
    assert path_tokens(tree, path[-1])[1:] == continuation[:longest]
