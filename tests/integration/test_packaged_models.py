"""Speculative decoding of the packaged models writes their own output, token by token, float32."""

from functools import cache

import pytest

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.config.settings import Settings
from specdec_core.decoding import generate, make_drafter
from specdec_core.errors import ConfigError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.target import Target
from specdec_core.skip import SkipConfig

pytestmark = [pytest.mark.models, pytest.mark.slow]

LIMIT = 10
DRAFTERS = (
    PromptLookup(num_tokens=4),
    TokenRecycling(num_nodes=12, update="all"),
    TokenRecycling(num_nodes=12, update="path"),
)
PROMPTS = (
    "German: Der Zug fährt ab.\nEnglish: The train leaves.\n\nGerman: Der Zug kommt an.\nEnglish:",
    "one two three one two three one two",
    "Question: Name the red fruit, the yellow fruit and the green fruit.\nAnswer:",
)


@cache
def packaged(name: str) -> Target:
    try:
        model = resolve_model(f"pypi:{name}", Settings().cache_dir)
    except ConfigError as error:
        if "not installed" not in str(error):
            raise
        pytest.skip(str(error))
    return load_target(model, dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("name", "skip"),
    [("gemma3-270m", ""), ("gemma3-270m", "a13"), ("smollm2-135m", ""), ("smollm2-135m", "9")],
)
def test_drafting_changes_no_token_alone_or_in_a_batch(name, skip):
    target = packaged(name)
    view = target.view(SkipConfig.parse(skip))
    prompts = target.tokenizer(list(PROMPTS))["input_ids"]

    def decode(config, prompts):
        drafters = [make_drafter(config) for _ in prompts]
        return generate(view, prompts, drafters, max_new_tokens=LIMIT, eos_ids=target.eos_ids)

    expected = [decode(NoDrafter(), [prompt])[0].token_ids for prompt in prompts]
    assert [result.token_ids for result in decode(NoDrafter(), prompts)] == expected
    for config in DRAFTERS:
        alone = [decode(config, [prompt])[0] for prompt in prompts]
        together = decode(config, prompts)
        assert [result.token_ids for result in alone] == expected
        assert [result.token_ids for result in together] == expected
        assert [result.trace for result in together] == [result.trace for result in alone]
        assert sum(sum(result.trace.accepted) for result in alone) > 0
