"""Token Recycling: a static tree filled with the successors last seen after each token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from specdec_core.config.drafters import TokenRecycling
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.tree.static_tree import StaticTree, best_static_tree, profile_static_tree
from specdec_core.tree.token_tree import TokenTree

_PAPER_DEPTH_COUNTS = (8, 21, 25, 15, 8, 3)
# Chance that the successor of rank r is right given its parent was: a power law, fitted so that
# the best tree of 80 nodes has nearly the paper's depth counts (8, 23, 25, 17, 6, 1).
_FIRST_RANK_CHANCE = 0.325
_RANK_EXPONENT = 2.1


@register(TokenRecycling)
class TokenRecyclingDrafter:
    """Keeps for each token the ids ranked best after it when it was last processed.

    A proposal looks them up breadth first along a fixed shape: the child of rank r of a node is
    the r-th successor of the node's token. Tokens never seen have no children. Where a token
    occurs several times in a step, its last row counts; those of the accepted path come last.

    Source: Token Recycling, sections on the adjacency matrix and the static tree. The paper's
    matrix starts as zeros and lives across requests; ours starts empty, and lives across requests
    only if the state scope is ``run``. Learning from the prompt is ours.
    """

    def __init__(self, config: TokenRecycling, context: DrafterContext) -> None:  # noqa: ARG002
        self.needs = self.needs_for(config)
        self._is_kept_between_requests = config.state_scope == "run"
        self._learns_prompt = config.prompt_bigrams
        self._top_k = config.top_k
        self._successors: dict[int, Sequence[int]] = {}
        self._shape = recycling_tree(config.top_k, config.num_nodes, config.max_depth)

    @staticmethod
    def needs_for(config: TokenRecycling) -> DrafterNeeds:
        """Ask for the rankings the matrix learns from."""
        return DrafterNeeds(max_nodes=config.num_nodes, rows=config.update, top_k=config.top_k)

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:  # noqa: ARG002 - not random
        """Begin a request; forget the last one unless the state scope is the run.

        With `prompt_bigrams` what follows a token in the prompt goes before what is known of it.
        """
        if not self._is_kept_between_requests:
            self._successors.clear()
        if self._learns_prompt:
            for token, followers in _followers(prompt).items():
                row = dict.fromkeys((*followers, *self._successors.get(token, ())))
                self._successors[token] = tuple(row)[: self._top_k]

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the shape, as far as successors are known and the budget goes."""
        shape = self._shape
        tokens = [sequence[-1]]
        parents = [-1]
        placed = {0: 0}
        rows = [self._successors.get(sequence[-1], ())]
        for node in range(1, min(budget.max_nodes + 1, len(shape.parents))):
            if shape.depths[node] > budget.max_depth:
                break
            parent = placed.get(shape.parents[node])
            if parent is None or shape.ranks[node] >= len(rows[parent]):
                continue
            token = rows[parent][shape.ranks[node]]
            placed[node] = len(tokens)
            tokens.append(token)
            parents.append(parent)
            rows.append(self._successors.get(token, ()))
        return Proposal(TokenTree(tuple(tokens), tuple(parents)))

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the offered rows, later ones over earlier ones."""
        self._successors.update(zip(outcome.row_tokens, outcome.top_k, strict=True))


def _followers(tokens: Sequence[int]) -> dict[int, dict[int, None]]:
    """Return for each token what followed it, distinct, the last time first."""
    found: dict[int, dict[int, None]] = {}
    for token, follower in reversed(list(pairwise(tokens))):
        found.setdefault(token, {}).setdefault(follower)
    return found


def recycling_tree(top_k: int, num_nodes: int, max_depth: int) -> StaticTree:
    """Return the shape for a budget: the paper's depth counts at its budget, else the best tree.

    Both take the paths with the largest products of rank chances (see `best_static_tree`); at 80
    nodes, depth 6 and 8 or more successors they compete per depth for the paper's counts.
    """
    chances = [_FIRST_RANK_CHANCE * (rank + 1) ** -_RANK_EXPONENT for rank in range(top_k)]
    table = [chances] * max_depth
    is_paper = num_nodes == sum(_PAPER_DEPTH_COUNTS) and max_depth == len(_PAPER_DEPTH_COUNTS)
    if is_paper and top_k >= _PAPER_DEPTH_COUNTS[0]:
        return profile_static_tree(table, _PAPER_DEPTH_COUNTS)
    return best_static_tree(table, num_nodes)
