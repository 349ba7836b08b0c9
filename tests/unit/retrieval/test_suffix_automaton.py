"""The automaton on a worked example and against scanning the text."""

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.retrieval.suffix_automaton import Automaton, Match

TEXT = [1, 2, 3, 4, 1, 2, 3]


def fed(text):
    automaton = Automaton()
    automaton.feed(text)
    return automaton


def first_end(text, string):
    """Return the number of tokens up to the end of the first occurrence of `string`, or None."""
    ends = range(len(string), len(text) + 1)
    return next((end for end in ends if text[end - len(string) : end] == string), None)


def scan(text, context):
    """Return length and first end of the longest suffix of `context` in `text`."""
    for length in range(len(context), 0, -1):
        end = first_end(text, context[-length:])
        if end is not None:
            return length, end
    return 0, 0


def test_the_text_repeats_itself_as_far_as_it_can():
    automaton, lengths = Automaton(), []
    for token in TEXT:
        automaton.feed([token])
        lengths.append(automaton.repeat_length)
    assert lengths == [0, 0, 0, 0, 1, 2, 3]
    assert automaton.num_states == 8
    assert len(automaton) == 7


def test_the_longest_match_is_told_with_its_first_end():
    automaton = fed(TEXT)
    for token, length, end in ((4, 4, 4), (2, 1, 2), (9, 0, 0), (1, 1, 1)):
        match = automaton.match(token)
        assert (match.length, match.end) == (length, end)


def test_nothing_matches_in_an_empty_text():
    assert Automaton().match(1) == Match(0, 0, 0)
    assert Automaton().repeat_length == 0


def test_a_cleared_automaton_knows_nothing():
    automaton = fed(TEXT)
    automaton.clear()
    assert (len(automaton), automaton.num_states, automaton.match(1).length) == (0, 1, 0)
    automaton.feed(TEXT)
    assert automaton.match(4).length == 4


def test_a_match_with_little_text_after_it_gives_way_to_a_shorter_one():
    # "1 2" with its end at 7 has one token behind it; "2" ends first at 2, with six behind it.
    automaton = fed([3, 2, 5, 6, 0, 1, 2, 4])
    automaton.feed([8, 1])
    match = automaton.match(2)
    assert (match.length, match.end) == (2, 7)
    assert automaton.widen(match, 3) == match
    wider = automaton.widen(match, 4)
    assert (wider.length, wider.end) == (1, 2)
    # Nothing has nine tokens behind it: the shortest suffix comes closest.
    assert automaton.widen(match, 9) == wider


def test_a_match_stays_where_no_suffix_occurs_elsewhere():
    automaton = fed(TEXT)
    match = automaton.match(4)
    assert automaton.widen(match, 100) == match


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(0, 3), st.integers(1, 8))
def test_matches_are_those_of_a_scan(text, token, num_tokens):
    automaton = fed(text)
    match = automaton.match(token)
    assert (match.length, match.end) == scan(text, [*text, token])
    assert automaton.num_states <= max(2, 2 * len(text))
    wider = automaton.widen(match, num_tokens)
    context = [*text, token]
    suffixes = [context[-length:] for length in range(match.length, 0, -1)]
    ends = [(len(each), first_end(text, each)) for each in suffixes]
    enough = [each for each in ends if len(text) - each[1] >= num_tokens]
    if enough:
        assert (wider.length, wider.end) == enough[0]
    else:
        assert wider.end == min((end for _, end in ends), default=0)


@given(st.lists(st.integers(0, 2), max_size=30))
def test_feeding_at_once_or_token_by_token_is_the_same(text):
    at_once, one_by_one = fed(text), Automaton()
    for length, token in enumerate(text):
        one_by_one.feed([token])
        assert one_by_one.repeat_length == scan(text[:length], text[: length + 1])[0]
    for token in range(3):
        assert one_by_one.match(token) == at_once.match(token)
