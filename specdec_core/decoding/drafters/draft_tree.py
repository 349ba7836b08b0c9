"""Draft-tree speculation: a smaller model writes a token tree, static or grown by likelihood."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.model_drafters import DraftTree
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register


@register(DraftTree)
class DraftTreeDrafter:
    """Drafts a tree with an independent model: one forward per level, over the nodes to expand.

    Source: EAL (arXiv 2609.24150), evaluation section, for the static tree: top-k per depth,
    pruned by cumulative score; its limit counts draft nodes, root left out. EAGLE-2, sections 4.1
    and 4.2, for the dynamic one, with an order that cannot part a child from its parent.
    """

    def __init__(self, config: DraftTree, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        model = context.require_model(config.method, config.model)
        growth = Growth(config.levels, config.most_nodes, config.width)
        self._writer = DraftWriter.of(model.view(), growth, config, context)

    @staticmethod
    def needs_for(config: DraftTree) -> DrafterNeeds:
        """Ask for room for the tree."""
        return DrafterNeeds(max_nodes=config.most_nodes)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request: the draft reads the prompt."""
        self._writer.reset(prompt, seed)
        self._writer.session.reset(prompt)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the tree."""
        return self._writer.write(sequence, budget)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn nothing: the sequence tells what was accepted."""
