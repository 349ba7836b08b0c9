"""Prompt lookup: continue the last n-gram as it was continued before."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.drafters import PromptLookup
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register


@register(PromptLookup)
class PromptLookupDrafter:
    """Drafts the chain that followed the most recent earlier occurrence of the last n-gram.

    The longest n-gram with an occurrence decides, down to one token; the continuation may be
    shorter than asked for at the end of the sequence. A table from n-gram to the position after
    its last occurrence makes a step O(max_ngram), whatever the length of the sequence.

    Source: Prompt lookup decoding; the most recent match instead of the earliest, any length of
    continuation, and nothing at all where nothing matches.
    """

    def __init__(self, config: PromptLookup, context: DrafterContext) -> None:  # noqa: ARG002
        self.needs = self.needs_for(config)
        self._max_ngram = config.max_ngram
        self._next: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    @staticmethod
    def needs_for(config: PromptLookup) -> DrafterNeeds:
        """Ask for room for the continuation."""
        return DrafterNeeds(max_nodes=config.num_tokens)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:  # noqa: ARG002 - not random
        """Forget the last request and index the prompt."""
        self._next.clear()
        self._num_indexed = 0
        self._index(prompt)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the continuation as a chain, or the root alone if nothing matches."""
        self._index(sequence)
        for size in range(min(self._max_ngram, len(sequence) - 1), 0, -1):
            start = self._next.get(tuple(sequence[-size:]))
            if start is not None:
                length = min(self.needs.max_nodes, budget.max_nodes, budget.max_depth)
                return Proposal.chain(sequence[-1], sequence[start : start + length])
        return Proposal.nothing(sequence[-1])

    def observe(self, outcome: StepOutcome) -> None:
        """Learn nothing: the sequence itself is the memory."""

    def _index(self, sequence: Sequence[int]) -> None:
        """Enter every n-gram that has a token after it; the current last one never has."""
        for after in range(max(self._num_indexed, 1), len(sequence)):
            for size in range(1, min(self._max_ngram, after) + 1):
                self._next[tuple(sequence[after - size : after])] = after
        self._num_indexed = len(sequence)
