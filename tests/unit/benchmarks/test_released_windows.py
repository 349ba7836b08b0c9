"""Restated releases that draft in a window, and Progressive Tree Drafting, on worked examples."""

from benchmarks.released.lookahead import GuessLists, ReleasedLookahead
from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.ptd import ReleasedPool, ReleasedPtd
from benchmarks.released.ptd_forest import Node, ReleasedForest
from benchmarks.released.self_draft import ReleasedSelfDraft, corpus_drafts
from benchmarks.released.window import Column, Window
from specdec_core.decoding import DraftBudget, StepOutcome, generate
from specdec_core.retrieval.frequent_ngrams import FrequentNgrams
from specdec_core.retrieval.indexed_text import index_documents
from specdec_core.tree import TokenTree
from tests.doubles import random_view, slow_greedy

PASSES = PromptPass(random_view(0, vocab_size=64))
WIDE = DraftBudget(1024, 64)


def sizes(window):
    """Return prefix tokens, and drafted tokens per level."""
    depth = len(window.columns[0].body)
    prefixes = sum(len(column.prefix) for column in window.columns)
    return [prefixes, *[len(window.columns)] * depth]


def test_a_window_fills_as_published():
    window = Window.begin([[token] for token in range(17)], 3, is_chained=True)
    seen = [sizes(window)]
    while not window.is_full:
        window.gain([50] * len(window.columns))
        seen.append(sizes(window))
    assert seen == [[17], [16, 17], [15, 16, 16], [14, 15, 15, 15]]


def oracle_window():
    columns = [Column([], [31]), Column([21], [32]), Column([22], [33])]
    return Window(columns, 1, is_chained=True)


def test_a_full_window_moves_its_oldest_tokens_into_the_prefixes():
    window = oracle_window()
    # Column i stands behind the prefixes of the columns before it.
    assert window.tree(50)[0] == TokenTree((50, 31, 21, 32, 22, 33), (-1, 0, 0, 2, 2, 4))
    window.gain([41, 42, 43])
    assert window.columns == [Column([], [41]), Column([32], [42]), Column([33], [43])]


def test_self_draft_hangs_every_prefix_behind_the_root_and_keeps_its_length():
    window = Window([Column([], [1]), Column([5, 6], [2])], 1, is_chained=False)
    assert window.tree(9)[0] == TokenTree((9, 1, 5, 6, 2), (-1, 0, 0, 2, 3))
    window.gain([3, 4])
    assert window.columns == [Column([], [3]), Column([6, 2], [4])]


def test_guess_lists_put_what_is_seen_again_last_and_drop_the_first():
    lists = GuessLists(2)
    for entry in ([1, 2], [3, 4], [1, 2], [5, 6]):
        lists.enter(7, entry)
    assert lists.lists == {7: [(1, 2), (5, 6)]}


def test_lookahead_enters_three_ngrams_and_never_keeps_the_last_token_of_a_guess():
    drafter = ReleasedLookahead(PASSES, 3, 3, 7)
    drafter.reset([5, 6])
    drafter._window = oracle_window()
    proposal = drafter.propose([5, 50], WIDE)
    rows = [[0], [41], [0], [42], [0], [43]]
    drafter.observe(StepOutcome(proposal, (0,), (8,), drafting_top_k=rows))
    assert drafter._pool.lists == {50: [(31, 41)], 21: [(32, 42)], 22: [(33, 43)]}
    # Outputs 31, 41, 77 behind 50: the release commits 31 and 41, as the guess 31 and its bonus.
    assert drafter.propose([5, 50], WIDE).candidates == TokenTree.chain(50, [31])


def test_lookahead_reads_prompt_and_output_where_asked_to():
    drafter = ReleasedLookahead(PASSES, 3, 3, 7, pool_from_prompt=True)
    drafter.reset([5, 6, 7, 8])
    drafter.observe(StepOutcome(None, (), (9,)))
    assert drafter._pool.lists == {5: [(6, 7)], 6: [(7, 8)], 7: [(8, 9)]}


def test_self_draft_completes_the_end_of_the_text_with_the_first_branch():
    drafter = ReleasedSelfDraft(PASSES)
    drafter.reset([10, 11])
    drafter._text = [10, 11, 12, 13, 14]
    drafter._window = Window(
        [Column([], [1, 2, 3, 4]), Column([9], [5, 6, 7, 8])], 4, is_chained=False
    )
    # Nodes: root 0; first branch 1 to 4; snippet 5; second branch 6 to 9. The target's token
    # behind node n is 20 + n, behind the root 15.
    best = [15, *range(21, 30)]
    drafter._enter(best, 15)
    lists = drafter._pool.lists
    # Second branch: 9 5 6 7 8 and the tokens behind 7 and 8.
    assert lists[9] == [(5, 6, 7, 28)]
    assert lists[5] == [(6, 7, 8, 29)]
    assert lists[10] == [(11, 12, 13, 14)]
    # One token short: the token behind the snippet (25) in place of the right one, entered last.
    assert lists[11] == [(12, 13, 14, 25), (12, 13, 14, 15)]
    assert lists[12] == [(13, 14, 1, 21)]
    assert lists[13] == [(14, 1, 2, 22)]
    assert lists[14] == [(1, 2, 3, 23)]
    assert lists[1] == [(2, 3, 4, 24)]


def test_self_draft_trims_its_lists_before_every_second_request():
    drafter = ReleasedSelfDraft(PASSES)
    drafter.reset([10, 11])
    for number in range(3):
        drafter._pool.enter(7, [number] * 4)
    drafter.reset([10, 11])
    assert drafter._pool.lists == {7: [(1, 1, 1, 1), (2, 2, 2, 2)]}
    drafter._pool.enter(7, [5] * 4)
    drafter.reset([10, 11])
    assert len(drafter._pool.lists[7]) == 3


def test_corpus_drafts_do_not_replace_what_the_context_offers():
    text = index_documents([[1, 2, 30, 31, 32, 33]] * 3 + [[2, 40, 41, 42, 43]] * 2)
    corpus = FrequentNgrams(text, num_tokens=4, longest_key=4, min_count=2)
    long, short = (30, 31, 32, 33), (40, 41, 42, 43)
    assert corpus_drafts(corpus, [1, 2], 3, []) == [long, short]
    # Of the key 2 one entry is still wanted; it is the one found already.
    assert corpus_drafts(corpus, [1, 2], 2, []) == [long]
    assert corpus_drafts(corpus, [2], 1, [long]) == []


def forest_of(width, depth, *tops):
    forest = ReleasedForest(width, depth)
    for token in tops:
        forest.root.child(token)
    return forest


def shape(node):
    return {child.token: shape(child) for child in node.children.values()}


def test_a_forest_grows_and_steps_down_to_the_earliest_child():
    forest = forest_of(2, 3, 7, 100)
    for drafts in ([3, 101], [5, 9, 101, 102]):
        forest.take(drafts)
        forest.advance(0)
    assert shape(forest.root) == {7: {3: {9: {}}, 5: {}}, 100: {101: {102: {}}}}
    assert forest.is_full_grown
    # In order 7, 3, 9, 5, 100, 101, 102; both are four levels high then.
    forest.take([3, 12, 4, 6, 101, 102, 103])
    forest.advance(0)
    assert shape(forest.root) == {3: {9: {4: {}}, 12: {}}, 101: {102: {103: {}}}}
    # 3 has two children already and does not take 1.
    forest.take([1, 4, 0, 8, 102, 103, 104])
    forest.advance(0)
    assert shape(forest.root) == {9: {4: {0: {}}}, 102: {103: {104: {}}}}


def test_a_missing_sub_tree_begins_with_the_last_ones_draft():
    forest = forest_of(2, 3, 7)
    forest.take([3])
    forest.advance(0)
    assert shape(forest.root) == {7: {}, 3: {}}
    empty = forest_of(2, 3)
    empty.advance(42)
    assert shape(empty.root) == {42: {}}


def test_a_child_that_is_a_top_already_is_passed_over():
    forest = forest_of(2, 1, 7, 3)
    forest.take([3, 9])
    forest.advance(0)
    # 7 has no other child than 3, which is a top: it ends; 3 goes on as 9.
    assert shape(forest.root) == {9: {}}


def test_the_branch_of_the_token_2_is_cut_from_four_levels_above():
    forest = forest_of(2, 9, 50, 60)
    node = forest.root.children[50]
    for token in (51, 52, 53, 54):
        node = node.child(token)
    node.draft = 2
    for other in forest.root.walk():
        other.draft = other.draft or other.token + 1
    forest.advance(0)
    # 2 stands below 54; four levels above it is 51.
    assert shape(forest.root) == {50: {}, 60: {61: {}}}


def test_the_pool_holds_what_stands_below_every_node():
    top = Node(7)
    top.child(3).child(9).child(4)
    top.children[3].child(7).child(3).child(2)
    pool = ReleasedPool()
    for node in (top, *top.walk()):
        pool.merge(node)
    assert shape(pool.trees[7]) == {3: {9: {4: {}}, 7: {3: {2: {}}}, 2: {}}}
    assert shape(pool.trees[3]) == {9: {4: {}}, 7: {3: {2: {}}}, 2: {}}
    assert shape(pool.trees[9]) == {4: {}}


def test_a_tree_above_sixty_nodes_loses_its_first_branch_once():
    pool = ReleasedPool()
    for token in range(100, 161):
        node = Node(7)
        node.draft = token
        pool.merge(node)
    assert list(pool.trees[7].children) == list(range(101, 161))


def test_a_verified_tree_gains_the_targets_tokens():
    pool = ReleasedPool()
    node = Node(7)
    node.child(3)
    pool.merge(node)
    pool.expand(7, [((3,), 9), ((3, 9), 1)])
    assert shape(pool.trees[7]) == {3: {9: {1: {}}}}


def test_every_restated_release_drafts_and_leaves_the_output_as_it_is():
    accepted = [0, 0, 0]
    for seed in range(6):
        view = random_view(seed, vocab_size=8)
        passes = PromptPass(view)
        prompt = [seed, 3, 5, 1, 2, 3]
        expected = slow_greedy(view.logits_after, prompt, 40)
        drafters = (
            ReleasedLookahead(passes, 4, 4, 3),
            ReleasedSelfDraft(passes),
            ReleasedPtd(passes, 2, 3),
        )
        for index, drafter in enumerate(drafters):
            [done] = generate(view, [prompt], [drafter], max_new_tokens=40, eos_ids=())
            assert list(done.token_ids) == expected
            accepted[index] += sum(done.trace.accepted)
    assert min(accepted) > 0
