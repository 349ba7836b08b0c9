"""Sampling options: ranges, what would be ignored, and the text form."""

import pytest
from pydantic import ValidationError

from specdec_core.config.sampling import Sampling, format_sampling, parse_sampling
from specdec_core.errors import ConfigError


def test_the_default_is_greedy_and_lossless():
    assert Sampling().is_greedy
    assert Sampling().is_lossless
    assert Sampling().is_coupled
    assert not Sampling().has_penalties
    assert format_sampling(Sampling()) == ""
    assert parse_sampling(" ") == Sampling()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("temperature=0.8,top_p=0.9", "temperature=0.8,top_p=0.9"),
        (" top_k=40 , temperature=1,seed=3 ", "temperature=1.0,top_k=40,seed=3"),
        ("temperature=0,repetition_penalty=1.1", "repetition_penalty=1.1"),
        (
            "temperature=1,verification=typical,epsilon=0.1",
            "temperature=1.0,verification=typical,epsilon=0.1",
        ),
    ],
)
def test_the_text_form_is_canonical_and_reads_back(text, canonical):
    sampling = parse_sampling(text)
    assert format_sampling(sampling) == canonical
    assert parse_sampling(canonical) == sampling


@pytest.mark.parametrize(
    ("verification", "is_lossless", "is_coupled"),
    [
        ("auto", True, True),
        ("match", True, True),
        ("residual", True, False),
        ("rejection", True, False),
        ("typical", False, False),
    ],
)
def test_what_a_rule_promises(verification, is_lossless, is_coupled):
    sampling = Sampling(temperature=1.0, verification=verification)
    assert (sampling.is_lossless, sampling.is_coupled) == (is_lossless, is_coupled)
    greedy = Sampling(verification=verification)
    assert greedy.is_lossless
    assert greedy.is_coupled
    assert sampling.is_coupled_for(draws_candidates=False) == is_coupled
    assert sampling.is_coupled_for(draws_candidates=True) == (verification == "match")
    assert greedy.is_coupled_for(draws_candidates=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("temperature=-1", "temperature: Input should be greater than or equal to 0"),
        ("temperature=nan", "temperature"),
        ("temperature=1,top_p=0", "top_p: Input should be greater than 0"),
        ("temperature=1,top_p=1.1", "top_p"),
        ("temperature=1,top_k=-1", "top_k"),
        ("temperature=1,min_p=2", "min_p"),
        ("repetition_penalty=0", "repetition_penalty"),
        ("temperature=1,verification=maybe", "verification"),
        ("top_p=0.9", "top_p would change nothing here: they need a temperature above 0"),
        ("temperature=1,delta=0.5", "delta would change nothing here: they need verification"),
        ("heat=1", "heat: Extra inputs .* it takes: temperature, top_k"),
        ("temperature", "'temperature' .* write option=value once"),
        ("top_k=1,top_k=2", "'top_k=2' .* write option=value once"),
    ],
)
def test_what_cannot_be_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_sampling(text)


def test_seeds_are_in_range_of_every_generator():
    with pytest.raises(ValidationError):
        Sampling(seed=2**63)
    with pytest.raises(ValidationError):
        Sampling(seed=-1)
