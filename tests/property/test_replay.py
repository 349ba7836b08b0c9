"""Replay equals decoding for random drafters, targets, limits, stop tokens and stop strings."""

from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.decoding import generate, make_drafter, replay
from tests.doubles import random_view

CONFIGS = st.one_of(
    st.just(NoDrafter()),
    st.builds(PromptLookup, max_ngram=st.integers(1, 4), num_tokens=st.integers(1, 12)),
    st.builds(
        TokenRecycling,
        top_k=st.integers(1, 6),
        num_nodes=st.integers(1, 30),
        max_depth=st.integers(1, 8),
        update=st.just("path"),
        prompt_bigrams=st.booleans(),
        state_scope=st.sampled_from(["prompt", "run"]),
    ),
)


@given(
    config=CONFIGS,
    seed=st.integers(0, 1000),
    vocab_size=st.integers(2, 7),
    has_ties=st.booleans(),
    limit=st.integers(1, 40),
    stop_token=st.none() | st.integers(0, 1),
    stop_string=st.none() | st.lists(st.integers(0, 2), min_size=1, max_size=3),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_a_replay_is_the_decode_without_the_model(
    config, seed, vocab_size, has_ties, limit, stop_token, stop_string, data
):
    view = random_view(seed, vocab_size, order=1 + seed % 3, has_ties=has_ties)

    def stop_check(output):
        if stop_string is None:
            return None
        size = len(stop_string)
        ends = range(size, len(output) + 1)
        return next((end for end in ends if output[end - size : end] == stop_string), None)

    decoder, replayer = make_drafter(config), make_drafter(config)
    for _ in range(2):  # twice, for what is remembered between requests
        prompt = data.draw(st.lists(st.integers(0, vocab_size - 1), min_size=1, max_size=10))
        stops = {
            "max_new_tokens": limit,
            "eos_ids": () if stop_token is None else {stop_token},
            "stop_check": stop_check,
            "num_top_k": 6,
        }
        (result,) = generate(view, [prompt], [decoder], **stops)
        # The rankings of a run without drafts serve as well: they belong to the output alone.
        (plain,) = generate(view, [prompt], [make_drafter(NoDrafter())], **stops)
        assert (plain.token_ids, plain.top_k) == (result.token_ids, result.top_k)
        assert plain.finish_reason == result.finish_reason
        trace = replay(
            replayer,
            prompt,
            plain.token_ids,
            plain.top_k,
            max_new_tokens=limit,
            vocab_size=vocab_size,
        )
        assert trace == result.trace
