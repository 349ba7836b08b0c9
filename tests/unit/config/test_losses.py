"""The text form of losses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from specdec_core.config.losses import (
    LOSSES,
    READERS,
    LossConfig,
    LossOptions,
    LossTerm,
    canonical_losses,
    format_loss,
    loss_names,
    parse_loss,
    unread_options,
)
from specdec_core.errors import ConfigError


def pairs(text):
    return [(term.name, term.weight) for term in parse_loss(text)]


def test_a_sum_has_its_weights():
    assert pairs("kl+0.1eal") == [("kl", 1.0), ("eal", 0.1)]
    assert pairs(" 1.0wtv + .1*grpo ") == [("wtv", 1.0), ("grpo", 0.1)]


def test_names_of_papers_stand_for_their_weights_unless_weights_are_written():
    assert pairs("kl+tv") == [("kl", 1.0), ("window-tv", 0.1)]
    assert pairs("kl+eal") == [("kl", 1.0), ("eal", 0.1)]
    assert pairs("0.5lk") == [("lk-lambda", 0.5)]
    assert pairs("kl+1eal") == [("kl", 1.0), ("eal", 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kl+eel", "loss 'eel' in 'kl\\+eel' is unknown: add losses out of ce, kl"),
        ("", "loss '' in '' is unknown"),
        ("kl-0.1eal", "is unknown"),
        ("0kl", "has weight 0: give one above 0"),
        ("1001kl", "has weight 1001"),
        ("kl+0.1kl", "loss 'kl' is named twice in 'kl\\+0.1kl': add its weights"),
    ],
)
def test_what_is_not_understood(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_loss(text)


def test_a_config_names_each_loss_once():
    term = LossTerm(name="kl")
    with pytest.raises(ValidationError, match=r"named twice in kl\+kl: add its weights"):
        LossConfig(terms=(term, term))


def test_names_of_both_phases_are_found():
    assert loss_names("kl+tv/wtv+0.1grpo") == {"kl", "window-tv", "wtv", "grpo"}
    assert loss_names("lk") == {"lk-lambda"}


def test_options_are_unread_where_no_loss_has_a_use_for_them():
    given = LossOptions(gamma=3, temperature=0.5, lk_eta=1.0, depth_decay=0.9, grpo_groups=1)
    assert unread_options(given, {"wtv"}) == ("lk_eta", "depth_decay", "grpo_groups")
    assert unread_options(given, {"kl", "grpo"}) == ("lk_eta",)
    assert unread_options(given, {"lk-lambda", "grpo"}) == ()
    assert unread_options(LossOptions(), {"wtv"}) == ()
    assert READERS.keys() == LossOptions.model_fields.keys() - {"gamma", "temperature"}


weights = st.floats(1e-9, 1000.0, allow_nan=False)
names = st.lists(st.sampled_from(LOSSES), min_size=1, max_size=5, unique=True)


@given(names=names, data=st.data())
def test_text_reads_back(names, data):
    drawn = [data.draw(st.one_of(st.just(1.0), st.just(0.1), weights)) for _ in names]
    terms = tuple(LossTerm(name=n, weight=w) for n, w in zip(names, drawn, strict=True))
    text = format_loss(terms)
    assert set(parse_loss(text)) == set(terms)
    assert format_loss(parse_loss(text)) == text
    assert format_loss(terms[::-1]) == text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("kl+0.1eal", "kl+0.1eal"),
        ("0.1eal+kl", "kl+0.1eal"),
        ("0.1grpo+wtv", "wtv+0.1grpo"),
        ("0.1grpo+0.1eal+kl", "kl+0.1eal+0.1grpo"),
        # Weights of a paper's name count in either order, and weights of 1 are told from them.
        ("eal+kl", "kl+0.1eal"),
        ("tv+kl", "kl+0.1window-tv"),
        ("1eal+1kl", "1kl+1eal"),
        ("0.1grpo+wtv/kl", "wtv+0.1grpo/kl"),
    ],
)
def test_a_sum_has_one_text_in_whatever_order_it_is_written(text, canonical):
    assert canonical_losses(text) == canonical
    assert canonical_losses(canonical) == canonical
