"""The drafter of autoregressive decoding."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.drafters import NoDrafter
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register


@register(NoDrafter)
class NothingDrafter:
    """Never proposes anything: one forward per token."""

    def __init__(self, config: NoDrafter, context: DrafterContext) -> None:  # noqa: ARG002
        self.needs = self.needs_for(config)

    @staticmethod
    def needs_for(config: NoDrafter) -> DrafterNeeds:  # noqa: ARG004 - the protocol's signature
        """Ask for nothing."""
        return DrafterNeeds()

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request; there is nothing to forget."""

    def propose(
        self,
        sequence: Sequence[int],
        budget: DraftBudget,  # noqa: ARG002 - the protocol's signature
    ) -> Proposal:
        """Return the root alone."""
        return Proposal.nothing(sequence[-1])

    def observe(self, outcome: StepOutcome) -> None:
        """Learn nothing."""
