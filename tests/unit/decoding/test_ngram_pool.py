"""The n-gram pool: what is kept, in which order, and from where it comes."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.decoding.ngram_pool import NgramPool


def filled(*continuations, max_per_token=3):
    pool = NgramPool(2, max_per_token)
    for continuation in continuations:
        pool.add(7, continuation)
    return pool


def test_the_continuation_seen_last_comes_first():
    assert filled((1, 1), (2, 2), (3, 3)).newest_first(7) == ((3, 3), (2, 2), (1, 1))


def test_a_repeated_continuation_moves_to_the_front_and_stays_one():
    assert filled((1, 1), (2, 2), (1, 1)).newest_first(7) == ((1, 1), (2, 2))


def test_the_one_not_seen_for_longest_gives_way():
    pool = filled((1, 1), (2, 2), (3, 3), (1, 1), (4, 4))
    assert pool.newest_first(7) == ((4, 4), (1, 1), (3, 3))


def test_tokens_are_apart():
    pool = filled((1, 1))
    pool.add(8, (2, 2))
    assert (pool.newest_first(8), pool.newest_first(9)) == (((2, 2),), ())


def test_a_drafted_path_ends_in_the_targets_token():
    pool = NgramPool(2, 9)
    # After 1, 2, 3, 4 the target wants 51, 52, 53, 54.
    pool.add_path([1, 2, 3, 4], [51, 52, 53, 54])
    assert pool.newest_first(1) == ((2, 52),)
    assert pool.newest_first(2) == ((3, 53),)
    assert pool.newest_first(3) == ((4, 54),)
    assert pool.newest_first(4) == ()


def test_a_path_shorter_than_a_continuation_holds_none():
    pool = NgramPool(3, 9)
    pool.add_path([1, 2], [51, 52])
    assert pool.newest_first(1) == ()


def test_single_tokens_are_continuations_too():
    pool = NgramPool(1, 9)
    pool.add_path([1, 2], [51, 52])
    pool.begin_text([3, 4])
    assert [pool.newest_first(token) for token in (1, 2, 3)] == [((51,),), ((52,),), ((4,),)]


def test_fewer_are_kept_and_everything_is_forgotten_on_demand():
    pool = filled((1, 1), (2, 2), (3, 3))
    pool.keep_newest(2)
    assert pool.newest_first(7) == ((3, 3), (2, 2))
    pool.begin_text([1, 2])
    pool.clear()
    assert (pool.newest_first(7), pool.recent) == ((), ())


@given(st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=5), st.integers(1, 4))
def test_a_text_in_pieces_holds_what_it_holds_as_a_whole(pieces, num_tokens):
    pool = NgramPool(num_tokens, 1000)
    pool.add(0, (9,) * num_tokens)  # texts of before are not continued
    pool.extend_text([2, 2, 2])
    pool.begin_text(pieces[0])
    before = {token: pool.newest_first(token) for token in range(3)}
    for piece in pieces[1:]:
        pool.extend_text(piece)
    text = [token for piece in pieces for token in piece]
    assert pool.recent == tuple(text[-num_tokens:])
    runs = [tuple(text[i : i + num_tokens + 1]) for i in range(len(text) - num_tokens)]
    for token in range(3):
        found = {run[1:] for run in runs if run[0] == token}
        assert found <= set(pool.newest_first(token)) <= found | set(before[token])
