"""Seeds: the entity rule on prompts written by hand, and random chains of prompt tokens."""

from collections import Counter

import numpy as np
import pytest

from specdec_core.decoding.progressive.seeds import entity_seeds, find_entities, random_seeds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Identifiers hold an underscore, a digit or a capital behind the first character.
        (
            "def has_close_elements(numbers: list, eps2) -> bool uses isClose and eps2",
            ["eps2", "has_close_elements", "isClose"],
        ),
        # Numbers, with separators; those inside identifiers are not numbers.
        ("add 12 apples at 3.50 to 1,200 in x86 and 12.", ["12", "3.50", "1,200", "x86"]),
        # Quotations of four kinds; an apostrophe is none.
        (
            "say \"red fox\" or 'blue sky' or `ls -l` or “old tree”, don't and won't",
            ["red fox", "blue sky", "ls -l", "old tree"],
        ),
        # Runs of capitalised words; the first word of a sentence does not count.
        (
            "Yesterday Mary Jones met Bob. Then she and Mary Jones left Paris.\nPeople cheered",
            ["Mary Jones", "Bob", "Paris"],
        ),
        # Its other words do, and what is quoted counts whole; a colon begins a sentence too.
        (
            'The United States won. "Great Britain" lost: Nobody knew',
            ["United States", "Great Britain", "Britain"],
        ),
        ("", []),
        ("nothing to see here. Really nothing! I say.", []),
    ],
)
def test_entities(text, expected):
    assert find_entities(text) == expected


def test_the_most_frequent_entity_comes_first_and_one_place_counts_once():
    # "foo_bar" is an identifier and a quotation in the same place.
    text = 'given 7 items and "foo_bar" and 8, return foo_bar for 9 and then 8'
    assert find_entities(text) == ["foo_bar", "8", "7", "9"]


class Words:
    """A tokenizer of words by their place in a list."""

    def __init__(self, text):
        self.words = text.split(" ")

    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        return " ".join(self.words[token] for token in ids)

    def encode(self, text, add_special_tokens):
        assert text[0] == " "
        assert not add_special_tokens
        return [self.words.index(word) for word in text[1:].split(" ")]


def test_entity_seeds_are_the_first_two_tokens_of_the_first_entities():
    words = Words("we saw Anna Maria Huber and Bob and Anna Maria Huber at 10")
    seeds = entity_seeds(range(13), words, 2)
    assert seeds == [[2, 3], [6]]
    assert entity_seeds(range(13), words, 9) == [[2, 3], [6], [12]]
    assert entity_seeds(range(2), words, 4) == []


def test_random_seeds_are_two_short_chains_of_prompt_tokens():
    lengths = Counter()
    for seed in range(200):
        chains = random_seeds([4, 5, 6, 0], {0}, np.random.default_rng(seed))
        assert len(chains) == 2
        assert chains[0][0] != chains[1][0]
        assert {token for chain in chains for token in chain} <= {4, 5, 6}
        lengths.update(map(len, chains))
    assert set(lengths) == {1, 2}
    assert abs(lengths[1] - lengths[2]) < 100  # 400 draws of a fair coin


def test_a_prompt_of_one_token_gives_one_chain():
    for prompt in ([3], [3, 3, 3], [3, 0]):
        (chain,) = random_seeds(prompt, {0}, np.random.default_rng(1))
        assert set(chain) == {3}
    (chain,) = random_seeds([0], {0}, np.random.default_rng(1))
    assert set(chain) == {0}
