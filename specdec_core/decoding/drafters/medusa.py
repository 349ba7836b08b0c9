"""Medusa: trained heads name the next tokens from the target's last hidden state."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.config.learned_drafters import Medusa
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_growth import DraftWriter, Growth
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.ranking import top_rows
from specdec_core.decoding.registry import register
from specdec_core.drafts.medusa import MedusaHeads
from specdec_core.drafts.specs import HEAD_INPUT_TAP
from specdec_core.errors import CacheDesyncError, ConfigError
from specdec_core.tree.token_tree import TokenTree

# How many children, by rank, a path of ranks has in the release's tree of 63 nodes.
_CHILDREN: dict[tuple[int, ...], int] = {
    (): 10,
    (0,): 10,
    (1,): 7,
    (2,): 3,
    (3,): 2,
    **{(rank,): 1 for rank in range(4, 10)},
    (0, 0): 10,
    (0, 1): 3,
    (0, 2): 2,
    **{(0, rank): 1 for rank in range(3, 8)},
    (1, 0): 2,
    (2, 0): 1,
    (0, 0, 0): 2,
}
_RANKS = 10


def sparse_paths() -> list[tuple[int, ...]]:
    """Return the ranks on the way to every node of the release's tree, by depth, then by rank."""
    paths = [(*path, rank) for path, num in _CHILDREN.items() for rank in range(num)]
    return sorted(paths, key=lambda path: (len(path), path))


class MedusaSession:
    """Heads that draft for one sequence; the form of `DraftSession`.

    Every node of one depth has the same logits: those of the head of that depth, computed once per
    step from the newest hidden state, which is that of the token before the last.
    """

    def __init__(self, heads: MedusaHeads) -> None:
        self._heads = heads
        self.reset()

    def reset(self) -> None:
        """Begin a sequence."""
        self._last: Tensor | None = None
        self._num_rows = 0
        self._logits: Tensor | None = None
        self._depths: list[int] = []

    def observe(self, hidden: Tensor) -> None:
        """Take the hidden states ``[n, h]`` of the sequence's next tokens."""
        self._last, self._logits = hidden[-1], None
        self._num_rows += len(hidden)

    def max_depth(self, sequence: Sequence[int]) -> int:
        """Return how many heads there are, 0 as long as there is no hidden state.

        Raises:
            CacheDesyncError: if the newest hidden state is not that of the token before the last.
        """
        if self._last is None:
            return 0
        if self._num_rows != len(sequence) - 1:
            raise CacheDesyncError(
                f"the heads were shown {self._num_rows} hidden states for a sequence of "
                f"{len(sequence)} tokens, which has {len(sequence) - 1}: reset the drafter with "
                "the prompt"
            )
        return self._heads.spec.num_heads

    @torch.inference_mode()
    def rows(self) -> Tensor:
        """Return the logits of all heads, ``[M, V_d]``; `max_depth` has been asked before."""
        if self._logits is None:
            assert self._last is not None
            self._logits = self._heads.logits(self._last, self._heads.spec.num_heads)
        return self._logits

    def begin(self, sequence: Sequence[int]) -> Tensor:  # noqa: ARG002 - the state says it all
        """Return the logits after `sequence`, ``[V_d]``."""
        self._depths = [0]
        return self.rows()[0]

    def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Return the logits after further nodes, ``[n, V_d]``."""
        assert len(tokens) == len(parents)
        depths = [self._depths[parent] + 1 for parent in parents]
        self._depths.extend(depths)
        return self.rows()[depths]


@register(Medusa)
class MedusaDrafter:
    """Drafts with all heads at once; no path knows what another token of it is.

    Candidates are ranked, or drawn head by head, and verified accordingly; the release's own rule
    under sampling is ``verification=typical``, which is lossy.

    Source: Medusa, sections 2.1 and 2.3, and the tree of its released configuration for 7B models
    with 63 nodes. The grown shapes are those of the EAGLE drafter with the heads' probabilities.
    """

    def __init__(self, config: Medusa, context: DrafterContext) -> None:
        draft = context.require_draft(config.method, config.model, config.other_target)
        heads = draft.module
        if not isinstance(heads, MedusaHeads):
            raise ConfigError(
                f"{config.model} holds a drafter of kind {draft.spec.kind!r}: use that method"
            )
        self.needs = self.needs_for(config)
        self._is_sparse = config.shape == "sparse"
        self._vocabulary = draft.vocabulary
        self._paths = sparse_paths()
        self._session = MedusaSession(heads)
        growth = Growth.learned(config)
        self._writer = DraftWriter.over(self._session, growth, config, context, draft.vocabulary)

    @staticmethod
    def needs_for(config: Medusa) -> DrafterNeeds:
        """Ask for room for the nodes, and the hidden states in front of the target's head."""
        return DrafterNeeds(max_nodes=config.most_nodes, taps=(HEAD_INPUT_TAP,))

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request."""
        self._writer.reset(prompt, seed)
        self._session.reset()

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return what the heads say of the next places."""
        if self._is_sparse:
            return self._sparse(sequence, budget)
        return self._writer.write(sequence, budget)

    def observe(self, outcome: StepOutcome) -> None:
        """Take the hidden states of what was committed."""
        assert outcome.hidden is not None
        self._session.observe(outcome.hidden)

    def _sparse(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the release's tree, cut to the budget from its end.

        Its nodes are in order of depth, so that what is left is a tree.
        """
        depth = min(budget.max_depth, self._session.max_depth(sequence))
        paths = [path for path in self._paths if len(path) <= depth][: budget.max_nodes]
        if not paths:
            return Proposal.nothing(sequence[-1])
        ranked = self._ranked(max(map(len, paths)))
        tokens, parents = [sequence[-1]], [-1]
        places: dict[tuple[int, ...], int] = {(): 0}
        for path in paths:
            ids = ranked[len(path) - 1]
            if path[-1] < len(ids) and path[:-1] in places:
                places[path] = len(tokens)
                tokens.append(ids[path[-1]])
                parents.append(places[path[:-1]])
        return Proposal(TokenTree(tuple(tokens), tuple(parents)))

    def _ranked(self, num_heads: int) -> list[list[int]]:
        """Return the target's ids of the likeliest tokens of every head, best first."""
        ranked = top_rows(self._session.rows()[:num_heads], _RANKS).ids
        if self._vocabulary is None:
            return ranked
        names = self._vocabulary.target_ids
        return [names[torch.tensor(ids, device=names.device)].tolist() for ids in ranked]
