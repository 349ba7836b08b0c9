"""Suffix arrays and look-ups against sorting and scanning."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.errors import ConfigError
from specdec_core.retrieval.indexed_text import SEPARATOR, index_documents
from specdec_core.retrieval.suffix_array import build_suffix_array

# Ids beyond 16 bits, whose little-endian bytes would sort differently.
IDS = st.sampled_from([0, 1, 2, 255, 256, 65_535, 65_536, 151_935])
DOCUMENTS = st.lists(st.lists(IDS, max_size=12), min_size=1, max_size=5).filter(any)


def places(text, found):
    return sorted(text.suffixes[found.first : found.first + found.num].tolist())


def scan(tokens, string):
    size = len(string)
    return [i for i in range(len(tokens) - size + 1) if tokens[i : i + size] == string]


@given(st.lists(IDS, min_size=1, max_size=60))
def test_suffixes_are_sorted(tokens):
    expected = sorted(range(len(tokens)), key=lambda start: tokens[start:])
    assert build_suffix_array(np.array(tokens, np.uint32)).tolist() == expected


@pytest.mark.parametrize("period", [1, 2, 7])
def test_long_repeats_are_sorted(period):
    tokens = list(range(period)) * (200 // period)
    expected = sorted(range(len(tokens)), key=lambda start: tokens[start:])
    assert build_suffix_array(np.array(tokens, np.uint32)).tolist() == expected


def test_documents_are_kept_apart():
    text = index_documents([[1, 2], [], [3]])
    assert text.tokens.tolist() == [1, 2, SEPARATOR, 3, SEPARATOR]
    assert text.find([2, 3]) is None
    assert places(text, text.find([3])) == [3]


@given(DOCUMENTS, st.lists(IDS, min_size=1, max_size=4))
def test_a_string_is_found_wherever_it_occurs(documents, string):
    text = index_documents(documents)
    found = text.find(string)
    expected = scan(text.tokens.tolist(), string)
    assert (places(text, found) if found else []) == expected
    assert found is None or found.length == len(string)


@given(
    DOCUMENTS,
    st.lists(IDS, min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 12),
)
def test_the_longest_suffix_within_bounds_is_found(documents, context, shortest, longest):
    text = index_documents(documents)
    tokens = text.tokens.tolist()
    lengths = range(min(longest, len(context)), shortest - 1, -1)
    expected = next((length for length in lengths if scan(tokens, context[-length:])), None)
    found = text.find_suffix(context, shortest=shortest, longest=longest)
    assert (found.length if found else None) == expected


@pytest.mark.parametrize("documents", [[], [[]], [[-1]], [[2**32 - 1]], [[2**40]]])
def test_what_cannot_be_indexed_is_refused(documents):
    with pytest.raises(ConfigError, match="cannot be indexed: give at least one token"):
        index_documents(documents)
