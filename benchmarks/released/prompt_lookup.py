"""Prompt lookup as Spec-Bench releases it."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal

_FILLER = 100


class ReleasedPromptLookup:
    """Drafts the earliest continuation that is whole, or the token 100.

    From three tokens down to one, the last n-gram is looked for from the left. An occurrence
    counts if `num_tokens` tokens follow it inside the sequence and its continuation begins before
    the n-gram at the end.

    Source: Spec-Bench, prompt lookup.
    """

    def __init__(self, max_ngram: int = 3, num_tokens: int = 10) -> None:
        self.needs = DrafterNeeds(max_nodes=num_tokens)
        self._max_ngram = max_ngram

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Nothing is remembered."""

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the chain, cut to the tokens that may still be written."""
        return Proposal.chain(sequence[-1], self.continuation(sequence)[: budget.max_depth])

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing is learned."""

    def continuation(self, sequence: Sequence[int]) -> list[int]:
        """Return what is drafted after `sequence`."""
        tokens, length, wanted = list(sequence), len(sequence), self.needs.max_nodes
        for size in range(min(self._max_ngram, length), 0, -1):
            ngram = tokens[length - size :]
            last_after = min(length - wanted, length - size - 1)
            for after in range(size, last_after + 1):
                if tokens[after - size : after] == ngram:
                    return tokens[after : after + wanted]
        return [_FILLER]
