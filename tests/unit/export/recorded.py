"""A drafter that remembers what it proposed."""

from __future__ import annotations

from typing import Any


class Recorded:
    """A drafter that remembers what it proposed behind what."""

    def __init__(self, drafter: Any) -> None:
        self._drafter, self.needs = drafter, drafter.needs
        self.proposals: list[tuple[list[int], list[int]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def propose(self, sequence: Any, budget: Any) -> Any:
        proposal = self._drafter.propose(sequence, budget)
        self.proposals.append((list(sequence), list(proposal.candidates.tokens[1:])))
        return proposal
