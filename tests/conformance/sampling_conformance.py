"""What every drafter must hold where tokens are drawn, under every verification rule."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import numpy as np
import pytest

from specdec_core.bench.distribution import distribution_test
from specdec_core.config.drafters import NoDrafter
from specdec_core.config.sampling import Sampling, Verification, parse_sampling
from specdec_core.decoding import generate, make_drafter
from tests.conformance.drafter_runs import SEEDS, DrafterRuns
from tests.doubles import ScriptedView

RULES = get_args(Verification)
MATCHED = (
    "temperature=0.9,top_p=0.9,verification=match",
    "temperature=1.5,top_k=4,min_p=0.05,repetition_penalty=1.3,seed=7,verification=match",
    "repetition_penalty=1.5,presence_penalty=0.5",
)
LAW_PROMPT = (0, 1, 2, 0, 1, 2, 2, 0, 1)


class SamplingConformance(DrafterRuns):
    """Subclass with a `config`, and more tokens or draws where drafts are rare.

    Attributes:
        law_tokens: Length of the outputs whose law is tested; the last three tokens count.
        num_draws: Outputs per test.
        is_bias_seen: Whether the lossy rule must fail the test: not where there are no drafts, or
            all drafts are the target's own.
    """

    law_tokens = 4
    num_draws = 120
    is_bias_seen = True

    @pytest.mark.parametrize("text", MATCHED)
    @pytest.mark.parametrize("batch_size", [1, 3])
    def test_a_sampled_output_is_that_of_plain_sampling_with_the_same_seeds(
        self, batch_size: int, text: str
    ) -> None:
        sampling = parse_sampling(text)
        for seed in SEEDS:
            view = self.view(seed)
            prompts = self.prompts(seed, view, batch_size)
            seeds = [seed + 10 * index for index in range(batch_size)]
            results = self.run(view, prompts, 20, [0], sampling=sampling, seeds=seeds)
            for prompt, own, result in zip(prompts, seeds, results, strict=True):
                (plain,) = generate(
                    view,
                    [prompt],
                    [make_drafter(NoDrafter())],
                    max_new_tokens=20,
                    eos_ids=[0],
                    sampling=sampling,
                    seeds=[own],
                )
                assert result.token_ids == plain.token_ids

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("seed", [1, 2])
    def test_a_seed_gives_the_same_steps_at_every_place_of_a_batch(
        self, seed: int, rule: Verification
    ) -> None:
        view = self.view(seed)
        prompts, seeds = self.prompts(seed, view, 3), [5, 6, 7]

        def steps(*order: int, rule: Verification = rule) -> list[tuple[Any, Any]]:
            results = self.run(
                view,
                [prompts[index] for index in order],
                16,
                [0],
                sampling=Sampling(temperature=1.2, top_p=0.95, seed=3, verification=rule),
                seeds=[seeds[index] for index in order],
            )
            return [(result.token_ids, result.trace) for result in results]

        together, twin = steps(0, 1, 2), self._twin(rule)
        if twin is not None:
            assert together == steps(0, 1, 2, rule=twin)
            return
        assert together == steps(2, 1, 0)[::-1]
        assert together == [*steps(0), *steps(1), *steps(2)]

    @pytest.mark.parametrize("rule", RULES)
    def test_outputs_have_the_targets_law_unless_the_rule_is_lossy(
        self, rule: Verification
    ) -> None:
        """Chi-square with fixed seeds. The lossy rule fails it, so drafts are common enough."""
        sampling = Sampling(temperature=1.0, verification=rule)
        is_matched = sampling.is_coupled_for(draws_candidates=self.config.draws_candidates)
        if is_matched or self._twin(rule) is not None:
            return  # tested token for token
        view = self.view(0)
        prompts, seeds = [LAW_PROMPT] * self.num_draws, range(self.num_draws)
        results = self.run(view, prompts, self.law_tokens, sampling=sampling, seeds=seeds)
        counts = Counter(result.token_ids[-3:] for result in results)
        found = distribution_test(counts, law_of_last_three(view, self.law_tokens))
        is_expected = sampling.is_lossless or not self.is_bias_seen
        assert found.is_passed() == is_expected, found

    def _twin(self, rule: Verification) -> Verification | None:
        """Return the rule that decides alike for candidates that are not drawn."""
        if self.config.draws_candidates:
            return None
        return {"auto": "match", "rejection": "residual"}.get(rule)


def law_of_last_three(view: ScriptedView, num_tokens: int) -> dict[tuple[int, int, int], float]:
    """Return the law of the last tokens of an output of a target that sees one token back."""
    ids = range(view.vocab_size)
    logits = np.array([view.logits_after([token]) for token in ids])
    step = np.exp(logits - logits.max(1, keepdims=True))  # [before, after]
    step /= step.sum(1, keepdims=True)
    first = np.linalg.matrix_power(step, num_tokens - 2)[LAW_PROMPT[-1]]
    return {(a, b, c): first[a] * step[a, b] * step[b, c] for a in ids for b in ids for c in ids}
