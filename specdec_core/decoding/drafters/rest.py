"""REST: what followed the end of the context in a datastore, as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdec_core.config.retrieval import Rest
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.retrieval.continuations import continuation_tree
from specdec_core.retrieval.datastore import open_datastore


@register(Rest)
class RestDrafter:
    """Drafts the most frequent continuations of the longest suffix that a datastore holds.

    Nothing is proposed where not even a suffix of `min_suffix` tokens occurs.

    Source: REST, section 3. Ours: token ids of 32 bits, where the released index wraps
    vocabularies above 65536; a fixed order among continuations of equal weight; of too many
    occurrences an even sample; no filler where nothing is found.
    """

    def __init__(self, config: Rest, context: DrafterContext) -> None:  # noqa: ARG002
        self.needs = self.needs_for(config)
        self._config = config
        _, self._store = open_datastore(Path(config.datastore))

    @staticmethod
    def needs_for(config: Rest) -> DrafterNeeds:
        """Ask for room for the tree."""
        return DrafterNeeds(max_nodes=config.num_nodes)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request; nothing is remembered."""

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the tree of continuations, or the root alone if nothing matches."""
        config = self._config
        found = self._store.find_suffix(
            sequence, shortest=config.min_suffix, longest=config.max_suffix
        )
        if found is None:
            return Proposal.nothing(sequence[-1])
        return Proposal(
            continuation_tree(
                self._store,
                found,
                sequence[-1],
                max_nodes=min(config.num_nodes, budget.max_nodes),
                max_depth=min(config.num_tokens, budget.max_depth),
                max_occurrences=config.max_matches,
            )
        )

    def observe(self, outcome: StepOutcome) -> None:
        """Learn nothing: the datastore does not change."""
