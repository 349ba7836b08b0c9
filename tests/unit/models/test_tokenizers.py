"""When a draft model speaks of the same tokens as its target."""

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec_core.errors import ConfigError
from specdec_core.models.tokenizers import check_same_tokenizer, decode_text, token_ends

NAMES = ("path:/target", "path:/draft")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def tokenizer(tokens=None, *, merges=(), added=(), is_lower=False, **special):
    tokens = ["<eos>", *ALPHABET] if tokens is None else tokens
    vocabulary = {token: index for index, token in enumerate(tokens)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if is_lower:
        made.normalizer = normalizers.Lowercase()
    made.add_special_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


def test_a_tokenizer_is_the_same_as_itself_and_with_tokens_added_behind():
    plain, longer = tokenizer(), tokenizer(added=["<|user|>", "<|end|>"])
    check_same_tokenizer(plain, tokenizer(), names=NAMES)
    check_same_tokenizer(plain, longer, names=NAMES)
    check_same_tokenizer(longer, plain, names=NAMES)


def test_the_token_that_ends_an_output_may_be_another_one():
    """As with a base model that drafts for its chat model."""
    base = tokenizer(added=["<|end|>"], eos_token="<eos>")
    check_same_tokenizer(tokenizer(added=["<|end|>"], eos_token="<|end|>"), base, names=NAMES)


def swapped(tokens, one, other):
    tokens = list(tokens)
    a, b = tokens.index(one), tokens.index(other)
    tokens[a], tokens[b] = other, one
    return tokens


def test_two_ids_that_changed_places_are_found():
    tokens = ["<eos>", *ALPHABET]
    one, other = tokens.index("k"), tokens.index("q")
    message = f"path:/draft has another tokenizer than path:/target: token 'k' is id {other} there"
    with pytest.raises(ConfigError, match=f"{message} and {one} here: choose a draft model of"):
        check_same_tokenizer(tokenizer(), tokenizer(swapped(tokens, "k", "q")), names=NAMES)


def test_one_id_with_another_meaning_is_found():
    with pytest.raises(ConfigError, match=r"id 257 is '<\|b\|>' there and '<\|a\|>' here"):
        check_same_tokenizer(tokenizer(added=["<|a|>"]), tokenizer(added=["<|b|>"]), names=NAMES)


@pytest.mark.parametrize("changes", [{"merges": [("q", "u")]}, {"is_lower": True}])
def test_the_same_vocabulary_that_splits_otherwise_is_found(changes):
    tokens = ["<eos>", *ALPHABET, "qu"]
    with pytest.raises(ConfigError, match="splits text otherwise"):
        check_same_tokenizer(tokenizer(tokens), tokenizer(tokens, **changes), names=NAMES)


def test_token_ends_part_the_text_and_a_character_belongs_to_its_last_token():
    made = tokenizer(added=["<|end|>"])
    made.backend_tokenizer.decoder = decoders.ByteLevel()
    ids = made("aé b", add_special_tokens=False)["input_ids"] + [made.vocab_size]
    # One byte per token: a, the two of é, the space, b; the special token writes nothing.
    assert len(ids) == 6
    text = decode_text(made, ids)
    assert (text, token_ends(made, ids, text)) == ("aé b", (1, 1, 2, 3, 4, 4))
    assert token_ends(made, [], "") == ()
