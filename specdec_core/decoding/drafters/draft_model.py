"""Draft-model speculation: a smaller model writes a chain or a token tree."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.model_drafters import DraftModel, DraftTree
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register


@register(DraftModel)
@register(DraftTree)
class DraftModelDrafter:
    """Drafts with an independent model and its own cache, one forward per level.

    A draft with a narrowed vocabulary reads all tokens and proposes those it has logits for; in
    what it draws from the others have probability 0, which the rejection rule makes up for.

    Behind the draft's context limit, at the limit of the output and where the draft ends the
    output the paths are shorter.

    Source: Leviathan et al. 2023, algorithm 1, and Chen et al. 2023, algorithm 2, for the chain.
    EAL (arXiv 2609.24150), evaluation section, for the static tree: top-k per depth, pruned by
    cumulative score; its limit counts draft nodes, root left out. EAGLE-2, sections 4.1 and 4.2,
    for the dynamic one, with an order that cannot part a child from its parent. FR-Spec (Zhao et
    al. 2025) for narrowed vocabularies.
    """

    def __init__(self, config: DraftModel | DraftTree, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        model = context.require_model(config.method, config.model)
        self._writer = DraftWriter.of(
            model.view(), _growth(config), config, context, model.vocabulary
        )

    @staticmethod
    def needs_for(config: DraftModel | DraftTree) -> DrafterNeeds:
        """Ask for room for the nodes."""
        return DrafterNeeds(max_nodes=_growth(config).num_nodes)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request: the draft reads the prompt."""
        self._writer.reset(prompt, seed)
        self._writer.session.reset(prompt)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return what the draft writes."""
        return self._writer.write(sequence, budget)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn nothing: the sequence tells what was accepted."""


def _growth(config: DraftModel | DraftTree) -> Growth:
    if isinstance(config, DraftModel):
        return Growth.chain(config.gamma, config.min_confidence)
    return Growth(config.levels, config.most_nodes, config.width)
