"""Every drafter, with its defaults and with options that reach its corners."""

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from tests.conformance.drafter_conformance import DrafterConformance


class TestNone(DrafterConformance):
    config = NoDrafter()
    repeats_cycles = False
    is_bias_seen = False


class TestPromptLookup(DrafterConformance):
    config = PromptLookup()


class TestPromptLookupShort(DrafterConformance):
    config = PromptLookup(max_ngram=1, num_tokens=2)


class TestPromptLookupLong(DrafterConformance):
    config = PromptLookup(max_ngram=8, num_tokens=64)


class TestTokenRecycling(DrafterConformance):
    config = TokenRecycling()


class TestTokenRecyclingPath(DrafterConformance):
    config = TokenRecycling(update="path", num_nodes=12)


class TestTokenRecyclingChain(DrafterConformance):
    config = TokenRecycling(top_k=1, num_nodes=8, max_depth=8, update="path")
    is_narrow = True


class TestTokenRecyclingPrompt(DrafterConformance):
    config = TokenRecycling(num_nodes=6, prompt_bigrams=True, update="path")


class TestTokenRecyclingRun(DrafterConformance):
    config = TokenRecycling(top_k=3, num_nodes=20, prompt_bigrams=True, state_scope="run")
