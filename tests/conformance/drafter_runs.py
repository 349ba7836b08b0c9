"""What the conformance suites of drafters run: targets, prompts, and drafters made for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from specdec_core.config.drafters import DrafterConfig
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import Drafter, DrafterContext, Generation, generate, make_drafter
from specdec_core.decoding.drafter import CacheBorrower
from tests.doubles import ScriptedView, random_view

GREEDY = Sampling()
SEEDS = range(12)


def lend(drafter: Drafter, view: ScriptedView, sequence: Sequence[int]) -> None:
    """Hand a drafter that shares it the target's cache of `sequence`, as the loop does."""
    if drafter.needs.shares_cache:
        cache = view.new_cache(1, len(sequence) + drafter.needs.max_nodes)
        if len(sequence) > 1:
            view.prefill([sequence[:-1]], cache)
        cast(CacheBorrower, drafter).borrow(cache)


class DrafterRuns:
    """Subclass with a `config`; the target is scripted, so every run is exact in float64.

    Targets look at one to three tokens of a small vocabulary, so outputs repeat themselves, and
    drafts are accepted and rejected at every depth.
    """

    config: DrafterConfig
    is_narrow = False
    """Whether these options leave a method that proposes trees nothing but chains."""
    repeats_cycles = True
    """Whether a text that repeats itself for good is drafted right at last."""

    def drafter(self) -> Drafter:
        """Return a new drafter; override where it needs more than tokens."""
        return make_drafter(self.config, DrafterContext())

    def drafter_for(self, view: ScriptedView, sampling: Sampling = GREEDY) -> Drafter:
        """Return a new drafter for a target; override where it needs the target itself."""
        return self.drafter()

    def view(self, seed: int) -> ScriptedView:
        """Return a target; vocabularies of 3 to 8 ids, every other one with tied logits."""
        return random_view(seed, 3 + seed % 6, order=1 + seed % 3, has_ties=seed % 2 == 1)

    def prompts(self, seed: int, view: ScriptedView, num: int) -> list[list[int]]:
        """Return prompts of 1, 2, .. tokens and more."""
        rng = np.random.default_rng([seed, num])
        lengths = [1 + (seed + 5 * index) % 12 for index in range(num)]
        return [rng.integers(0, view.vocab_size, length).tolist() for length in lengths]

    def run(
        self,
        view: ScriptedView,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        eos_ids: Sequence[int] = (),
        **options: Any,
    ) -> list[Generation]:
        """Decode with a new drafter per prompt."""
        drafters = [self.drafter_for(view, options.get("sampling", GREEDY)) for _ in prompts]
        return generate(
            view, prompts, drafters, max_new_tokens=max_new_tokens, eos_ids=eos_ids, **options
        )
