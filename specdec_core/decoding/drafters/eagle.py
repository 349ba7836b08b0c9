"""EAGLE: a trained layer on the target's hidden states writes a chain or a token tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdec_core.config.learned_drafters import Eagle
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.eagle_session import EagleSession
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.drafts.eagle import EagleHead
from specdec_core.drafts.manifest import read_draft_manifest
from specdec_core.errors import ConfigError


@register(Eagle)
class EagleDrafter:
    """Drafts with one layer and a cache of its own over the target's features, one run per level.

    What is accepted is read again from the target's own features before the next draft.

    Source: EAGLE, section 4.1, with a static tree of equally many children per depth in place of
    the published list; EAGLE-2, sections 4.1 and 4.2, for the dynamic tree, with an order that
    cannot part a child from its parent; EAGLE-3, section 3. Ranked candidates are verified as
    point masses, drawn ones by the distribution they were drawn from.
    """

    def __init__(self, config: Eagle, context: DrafterContext) -> None:
        draft = context.require_draft(config.method, config.model, config.other_target)
        head = draft.module
        if not isinstance(head, EagleHead):
            raise ConfigError(
                f"{config.model} holds a drafter of kind {draft.spec.kind!r}: use that method"
            )
        self.needs = DrafterNeeds(max_nodes=config.most_nodes, taps=head.spec.taps)
        self._session = EagleSession(head, context.require_target(config.method))
        self._writer = DraftWriter.over(
            self._session, Growth.learned(config), config, context, draft.vocabulary
        )

    @staticmethod
    def needs_for(config: Eagle) -> DrafterNeeds:
        """Ask for room for the nodes, and the hidden states that the checkpoint names."""
        taps = read_draft_manifest(Path(config.model)).draft.taps
        return DrafterNeeds(max_nodes=config.most_nodes, taps=taps)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request."""
        self._writer.reset(prompt, seed)
        self._session.reset()

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return what the head writes."""
        return self._writer.write(sequence, budget)

    def observe(self, outcome: StepOutcome) -> None:
        """Take the target's features of what was committed."""
        assert outcome.hidden is not None
        self._session.observe(outcome.hidden)
