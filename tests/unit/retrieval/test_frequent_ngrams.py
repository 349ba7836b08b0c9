"""Frequent continuations against plain counting."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from specdec_core.retrieval import frequent_ngrams
from specdec_core.retrieval.frequent_ngrams import FrequentNgrams
from specdec_core.retrieval.indexed_text import index_documents


def ngrams(documents, num_tokens=2, longest_key=3, min_count=1):
    return FrequentNgrams(
        index_documents(documents),
        num_tokens=num_tokens,
        longest_key=longest_key,
        min_count=min_count,
    )


def test_longer_keys_come_first_then_frequency_then_order():
    found = ngrams([[1, 2, 3, 3], [2, 5, 5], [2, 5, 5], [2, 4, 4]], longest_key=2)
    assert list(found.after([0, 1, 2])) == [(3, 3), (5, 5), (3, 3), (4, 4)]
    assert list(found.after([0, 2])) == [(5, 5), (3, 3), (4, 4)]
    assert list(found.after([0])) == list(found.after([])) == []


def test_documents_do_not_run_into_each_other():
    assert list(ngrams([[1, 2], [3], [1, 2, 3]]).after([1])) == [(2, 3)]


def test_continuations_seen_too_rarely_are_left_out():
    documents = [[2, 5, 5], [2, 5, 5], [2, 4, 4]]
    assert list(ngrams(documents, min_count=2).after([2])) == [(5, 5)]


def test_of_many_continuations_twenty_are_offered():
    documents = [[1, token, token] for token in range(100, 140)]
    assert list(ngrams(documents).after([1])) == [(token, token) for token in range(100, 120)]


def test_very_frequent_keys_are_counted_on_an_even_share(monkeypatch):
    monkeypatch.setattr(frequent_ngrams, "_MAX_OCCURRENCES", 5)
    documents = [[1, 2, 2]] * 12 + [[1, 3, 3]] * 6 + [[1, 4, 4]] * 2
    # Twenty occurrences, every fourth counts: three of 2 2, two of 3 3, none of 4 4.
    assert list(ngrams(documents).after([1])) == [(2, 2), (3, 3)]
    assert list(ngrams(documents, min_count=3).after([1])) == [(2, 2)]


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=5),
    st.lists(st.integers(0, 3), max_size=5),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_counting_by_hand_gives_the_same(documents, context, num_tokens, min_count):
    expected = []
    for length in range(min(3, len(context)), 0, -1):
        key = context[-length:]
        counts = Counter(
            tuple(document[start + length : start + length + num_tokens])
            for document in documents
            for start in range(len(document) - length - num_tokens + 1)
            if document[start : start + length] == key
        )
        often = [(-count, run) for run, count in counts.items() if count >= min_count]
        expected += [run for _, run in sorted(often)][:20]
    found = ngrams(documents, num_tokens=num_tokens, min_count=min_count)
    assert list(found.after(context)) == expected
