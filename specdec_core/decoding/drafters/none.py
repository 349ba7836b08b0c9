"""The drafter of autoregressive decoding."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.drafters import NoDrafter
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.registry import register
from specdec_core.tree.token_tree import TokenTree


@register(NoDrafter)
class NothingDrafter:
    """Never proposes anything: one forward per token."""

    needs = DrafterNeeds()

    def __init__(self, config: NoDrafter) -> None:
        self.config = config

    def reset(self, prompt: Sequence[int]) -> None:
        """Begin a request; there is nothing to forget."""

    def propose(
        self,
        sequence: Sequence[int],
        budget: DraftBudget,  # noqa: ARG002 - the protocol's signature
    ) -> TokenTree:
        """Return the root alone."""
        return TokenTree.root_only(sequence[-1])

    def observe(self, outcome: StepOutcome) -> None:
        """Learn nothing."""
