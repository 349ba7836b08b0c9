"""Does a drafter leave the law of sampled outputs as it is? A test for every drafter and rule.

A tiny target over four tokens writes many short outputs. Its law is computed exactly, from every
possible beginning, so all tokens of an output are tested together. The negative control decodes
alike under a rule that is known to be wrong: where even that one passes, the drafts were too rare
for the test to say anything.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import torch

from specdec_core.bench.distribution import DistributionTest, distribution_test
from specdec_core.config.drafters import DrafterConfig
from specdec_core.config.sampling import Sampling
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.decoding.sampling import probabilities, process_logits
from specdec_core.errors import ConfigError
from specdec_core.models.target import Target, TargetView
from specdec_core.models.tiny import tiny_target

Outcome = tuple[int, ...]

_VOCAB_SIZE = 4
_OUTPUT_TOKENS = 5
# Repeats itself, so that drafters that look at the prompt have something to offer.
_PROMPT = (0, 1, 2, 0, 1, 2, 3, 0, 1, 2)
_BATCH = 250


@dataclass(frozen=True, slots=True)
class LawCheck:
    """Test of a drafter under a rule, and the same test of the control."""

    test: DistributionTest
    control: DistributionTest


def check_law(config: DrafterConfig, sampling: Sampling, *, num_draws: int = 10_000) -> LawCheck:
    """Return how outputs drawn with a drafter fit the target's own law.

    Args:
        config: The drafter; models that it names are replaced by another tiny one.
        sampling: How tokens are chosen, and the rule; must draw.
        num_draws: Outputs drawn, and drawn again for the control; a multiple of 250.

    Raises:
        ConfigError: if nothing is drawn, or the drafter does not work on a tiny target.
    """
    if sampling.is_greedy:
        raise ConfigError("greedy decoding draws nothing: its outputs are compared instead")
    # No id ends an output, so that all have one length.
    target = tiny_target("llama", seed=5, vocab_size=_VOCAB_SIZE, num_layers=6)
    law = _exact_law(target.view(), sampling)
    drawn = (
        distribution_test(_draw(config, rule, target, num_draws), law)
        for rule in (sampling, _wrong(sampling))
    )
    return LawCheck(*drawn)


def _wrong(sampling: Sampling) -> Sampling:
    """The same sampling under a rule that accepts nearly every draft."""
    values = sampling.model_dump() | {"verification": "typical", "epsilon": 0.01, "delta": 0.01}
    return Sampling.model_validate(values)


def _draw(
    config: DrafterConfig, sampling: Sampling, target: Target, num_draws: int
) -> Counter[Outcome]:
    other = tiny_target("llama", seed=6, vocab_size=_VOCAB_SIZE, num_layers=2)
    view = target.view()
    context = DrafterContext(target, frozenset(), lambda _reference: other, sampling, view)
    drafters = [make_drafter(config, context) for _ in range(_BATCH)]
    counts: Counter[Outcome] = Counter()
    for start in range(0, num_draws, _BATCH):
        generations = generate(
            view,
            [_PROMPT] * _BATCH,
            drafters,
            max_new_tokens=_OUTPUT_TOKENS,
            eos_ids=(),
            sampling=sampling,
            seeds=range(start, start + _BATCH),
        )
        counts.update(generation.token_ids for generation in generations)
    return counts


def _exact_law(view: TargetView, sampling: Sampling) -> dict[Outcome, float]:
    """Probability of every output, one forward per length of its beginning."""
    law: dict[Outcome, float] = {(): 1.0}
    for length in range(_OUTPUT_TOKENS):
        beginnings = list(itertools.product(range(_VOCAB_SIZE), repeat=length))
        contexts = [[*_PROMPT, *beginning] for beginning in beginnings]
        with torch.inference_mode():
            cache = view.new_cache(len(contexts), len(contexts[0]))
            logits = view.prefill(contexts, cache)  # [B, V]
        longer: dict[Outcome, float] = {}
        for beginning, context, row in zip(beginnings, contexts, logits, strict=True):
            processed = process_logits(row, sampling, context, len(_PROMPT))
            for token, chance in enumerate(probabilities(processed).tolist()):
                longer[*beginning, token] = law[beginning] * chance
        law = longer
    return law
