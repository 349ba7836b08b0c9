"""Token Recycling as Spec-Bench releases it."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.templates import TOP_K, eighty_nodes, fill
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal

_WHOLE = DraftBudget(1 << 30, 1 << 30)


class ReleasedTokenRecycling:
    """Fills 80 nodes from a matrix that begins as zeros and is never emptied.

    Every forward writes the eight best successors of each of its tokens, in the order of the
    nodes, so that of equal tokens the last one counts. The first forward of a request holds the
    tree below the prompt's last token.

    Source: Spec-Bench, Token Recycling.
    """

    def __init__(self, prompts: PromptPass) -> None:
        self.needs = DrafterNeeds(max_nodes=80, rows="all", top_k=TOP_K)
        self._prompts = prompts
        self._shape = eighty_nodes()
        self._rows: dict[int, Sequence[int]] = {}

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:  # noqa: ARG002 - not random
        """Begin a request: learn from the forward that follows the prompt."""
        tree = fill(self._shape, prompt[-1], self._rows, _WHOLE)
        rows = self._prompts.rankings_behind(prompt, tree, TOP_K)
        self._rows.update(zip(tree.tokens, rows, strict=True))

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the filled shape."""
        return Proposal(fill(self._shape, sequence[-1], self._rows, budget))

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the rows of all nodes in their order."""
        self._rows.update(in_node_order(outcome))


def in_node_order(outcome: StepOutcome) -> list[tuple[int, Sequence[int]]]:
    """Return tokens and their rankings in the order of their nodes; none for the prefill."""
    if not outcome.row_nodes:
        return []
    rows = zip(outcome.row_nodes, outcome.row_tokens, outcome.top_k, strict=True)
    return [(token, ranking) for _, token, ranking in sorted(rows)]
