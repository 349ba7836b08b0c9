"""Draft-model speculation: a smaller model writes a chain."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.model_drafters import DraftModel
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register


@register(DraftModel)
class DraftModelDrafter:
    """Drafts up to gamma tokens with an independent model and its own cache.

    Behind the draft's context limit, at the limit of the output and where the draft ends the
    output the chain is shorter.

    Source: Leviathan et al. 2023, algorithm 1; Chen et al. 2023, algorithm 2.
    """

    def __init__(self, config: DraftModel, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        model = context.require_model(config.method, config.model)
        growth = Growth.chain(config.gamma, config.min_confidence)
        self._writer = DraftWriter.of(model.view(), growth, config, context)

    @staticmethod
    def needs_for(config: DraftModel) -> DrafterNeeds:
        """Ask for room for the chain."""
        return DrafterNeeds(max_nodes=config.gamma)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request: the draft reads the prompt."""
        self._writer.reset(prompt, seed)
        self._writer.session.reset(prompt)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the chain."""
        return self._writer.write(sequence, budget)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn nothing: the sequence tells what was accepted."""
