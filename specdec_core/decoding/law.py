"""Does a drafter leave the law of sampled outputs as it is? A test for every drafter and rule.

A tiny target over four tokens writes many short outputs. Its law is computed exactly, from every
possible beginning, so all tokens of an output are tested together. The negative control decodes
alike under a rule that is known to be wrong: where even that one passes, the drafts were too rare
for the test to say anything.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from specdec_core.bench.distribution import DistributionTest, distribution_test
from specdec_core.config.drafters import DrafterConfig
from specdec_core.config.model_drafters import LayerSkip
from specdec_core.config.sampling import Sampling
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.decoding.sampling import probabilities, process_logits
from specdec_core.drafts.loading import stand_in
from specdec_core.errors import ConfigError
from specdec_core.models.target import Target
from specdec_core.models.tiny import tiny_target
from specdec_core.models.view import TargetView
from specdec_core.skip import SkipConfig

Outcome = tuple[int, ...]

_VOCAB_SIZE = 4
_OUTPUT_TOKENS = 5
# Repeats itself, so that drafters that look at the prompt have something to offer.
_PROMPT = (0, 1, 2, 0, 1, 2, 3, 0, 1, 2)
_BATCH = 250
_FEWEST_LAYERS = 6


@dataclass(frozen=True, slots=True)
class LawCheck:
    """Test of a drafter under a rule, and the same test of the control."""

    test: DistributionTest
    control: DistributionTest


def check_law(
    config: DrafterConfig,
    sampling: Sampling,
    *,
    num_draws: int = 10_000,
    should_stop: Callable[[], bool] | None = None,
) -> LawCheck:
    """Return how outputs drawn with a drafter fit the target's own law.

    Args:
        config: The drafter; models that it names are replaced by another tiny one.
        sampling: How tokens are chosen, and the rule; must draw.
        num_draws: Outputs drawn, and drawn again for the control; a multiple of 250.
        should_stop: Asked before every step; None never stops.

    Raises:
        ConfigError: if nothing is drawn, or the drafter does not work on a tiny target.
        SearchCancelledError: if `should_stop` said so.
    """
    if sampling.is_greedy:
        raise ConfigError("greedy decoding draws nothing: its outputs are compared instead")
    # No id ends an output, so that all have one length.
    target = tiny_target("llama", seed=5, vocab_size=_VOCAB_SIZE, num_layers=_num_layers(config))
    law = _exact_law(target.view(), sampling)
    drawn = (
        distribution_test(_draw(config, rule, target, num_draws, should_stop), law)
        for rule in (sampling, _wrong(sampling))
    )
    return LawCheck(*drawn)


def _num_layers(config: DrafterConfig) -> int:
    """Layers of a target that has those a drafter skips, and one more at least."""
    units = SkipConfig.parse(config.skip).units if isinstance(config, LayerSkip) else ()
    return max([_FEWEST_LAYERS, *(unit.layer + 2 for unit in units)])


def _wrong(sampling: Sampling) -> Sampling:
    """The same sampling under a rule that accepts nearly every draft."""
    values = sampling.model_dump() | {"verification": "typical", "epsilon": 0.01, "delta": 0.01}
    return Sampling.model_validate(values)


def _draw(
    config: DrafterConfig,
    sampling: Sampling,
    target: Target,
    num_draws: int,
    should_stop: Callable[[], bool] | None,
) -> Counter[Outcome]:
    other = tiny_target("llama", seed=6, vocab_size=_VOCAB_SIZE, num_layers=2)
    view = target.view()
    context = DrafterContext(
        target,
        frozenset(),
        lambda _reference: other,
        sampling,
        view,
        load_draft=cache(lambda folder, _allows_other: stand_in(folder, target)),
    )
    drafters = [make_drafter(config, context) for _ in range(_BATCH)]
    counts: Counter[Outcome] = Counter()
    for start in range(0, num_draws, _BATCH):
        generations = generate(
            view,
            [_PROMPT] * _BATCH,
            drafters,
            max_new_tokens=_OUTPUT_TOKENS,
            eos_ids=(),
            should_stop=should_stop,
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
            rows = view.new_cache(len(contexts), len(contexts[0]))
            logits = view.prefill(contexts, rows)  # [B, V]
        longer: dict[Outcome, float] = {}
        for beginning, context, row in zip(beginnings, contexts, logits, strict=True):
            processed = process_logits(row, sampling, context, len(_PROMPT))
            for token, chance in enumerate(probabilities(processed).tolist()):
                longer[*beginning, token] = law[beginning] * chance
        law = longer
    return law
