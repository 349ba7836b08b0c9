import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.config.drafters import (
    METHODS,
    PromptLookup,
    TokenRecycling,
    format_drafter,
    parse_drafter,
)
from specdec_core.errors import ConfigError


def test_options_are_read_and_typed():
    assert parse_drafter("prompt-lookup:num_tokens=5, max_ngram=2") == PromptLookup(
        num_tokens=5, max_ngram=2
    )
    assert parse_drafter(" none ").method == "none"


def test_text_form_leaves_out_defaults():
    assert format_drafter(TokenRecycling()) == "token-recycling"
    assert format_drafter(TokenRecycling(num_nodes=12)) == "token-recycling:num_nodes=12"


@given(
    st.integers(1, 64),
    st.integers(1, 1024),
    st.sampled_from(["all", "path"]),
    st.sampled_from(["prompt", "run"]),
    st.booleans(),
)
def test_text_form_reads_back(top_k, num_nodes, update, scope, prompt_bigrams):
    config = TokenRecycling(
        top_k=top_k,
        num_nodes=num_nodes,
        update=update,
        state_scope=scope,
        prompt_bigrams=prompt_bigrams,
    )
    assert parse_drafter(format_drafter(config)) == config


def test_every_method_has_a_text_form():
    for name, options in METHODS.items():
        required = [key for key, field in options.model_fields.items() if field.is_required()]
        config = parse_drafter(f"{name}:{','.join(f'{key}=0' for key in required)}")
        assert config.method == name
        assert parse_drafter(format_drafter(config)) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hydra", "choose one of none, prompt-lookup, token-recycling"),
        ("prompt-lookup:num_tokens=0", "num_tokens: Input should be greater than or equal to 1"),
        ("prompt-lookup:width=3", "width: Extra inputs are not permitted; prompt-lookup takes"),
        ("prompt-lookup:num_tokens", "write option=value once"),
        ("prompt-lookup:num_tokens=1,num_tokens=2", "write option=value once"),
        ("none:x=1", "none takes: no options"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_drafter(text)
