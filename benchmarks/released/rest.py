"""REST as released: how its index cuts what it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.retrieval.indexed_text import SEPARATOR, IndexedText
from specdec_core.tree.merging import merge_chains

_FILLER = 100
_MAX_MATCHES = 5000
_LONGEST, _SHORTEST = 16, 2

Path = tuple[int, ...]


class ReleasedRest:
    """Drafts the continuations of the longest suffix found, from 16 tokens down to 2.

    Of the first 5000 occurrences the 64 heaviest beginnings of continuations are kept, and then
    the longest of them dropped until the distinct tokens of all that are left, each counted by
    itself, are 64 in all. Where nothing is found the token 100 is drafted.

    Source: REST and its index, as in Spec-Bench. Ties, which it breaks by chance: the shallower and
    then the smaller one is kept, the lighter one dropped, so that ancestors stay. Documents are
    kept apart by the datastore.
    """

    def __init__(self, store: IndexedText, num_nodes: int = 64, num_tokens: int = 10) -> None:
        self.needs = DrafterNeeds(max_nodes=num_nodes)
        self._store, self._num_tokens = store, num_tokens

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Nothing is remembered."""

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the tree of what is left after both cuts."""
        continuations = self._continuations(sequence)
        paths = keep(continuations, self.needs.max_nodes) if continuations else [(_FILLER,)]
        tree = merge_chains(
            sequence[-1], paths, max_nodes=self.needs.max_nodes, max_depth=budget.max_depth
        )
        return Proposal(tree)

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing is learned."""

    def _continuations(self, sequence: Sequence[int]) -> list[Path]:
        """Return what followed the longest suffix that occurs, once per occurrence."""
        for length in range(min(_LONGEST, len(sequence)), _SHORTEST - 1, -1):
            found = self._store.find(sequence[-length:])
            if found is not None:
                rows = self._store.suffixes[found.first : found.first + found.num][:_MAX_MATCHES]
                return [self._after(int(start) + length) for start in rows]
        return []

    def _after(self, start: int) -> Path:
        tokens = self._store.tokens[start : start + self._num_tokens].tolist()
        return tuple(tokens[: tokens.index(SEPARATOR)] if SEPARATOR in tokens else tokens)


def keep(continuations: Iterable[Path], num: int) -> list[Path]:
    """Return the beginnings of continuations that survive both cuts, the heaviest first.

    Args:
        continuations: One per occurrence.
        num: Beginnings kept, and distinct tokens left in all of them together.
    """
    weights: Counter[Path] = Counter()
    for each in continuations:
        weights.update(each[:end] for end in range(1, len(each) + 1))
    kept = sorted(weights, key=lambda path: (-weights[path], len(path), path))[:num]
    sizes = {path: len(set(path)) for path in kept}
    total = sum(sizes.values())
    dropped = set()
    for path in sorted(reversed(kept), key=lambda path: -sizes[path]):
        if total <= num:
            break
        total -= sizes[path]
        dropped.add(path)
    return [path for path in kept if path not in dropped]
