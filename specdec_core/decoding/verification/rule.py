"""What a verification rule is, and the walk that most of them share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.verification.rows import TreeRows
from specdec_core.randomness import Noise
from specdec_core.tree.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decided about one tree.

    Attributes:
        path: Accepted nodes, root first.
        bonus: The token that ends the step.
        margins: Per node of `path`, by how much the token after it won over the second best, in
            (perturbed) logits; empty where a rule knows no such thing.
    """

    path: tuple[int, ...]
    bonus: int
    margins: tuple[float, ...] = ()


class VerificationRule(Protocol):
    """Keeps a path of a tree and adds the bonus token."""

    def verify(self, proposal: Proposal, rows: TreeRows, noise: Noise) -> Verdict:
        """Return the path to keep and the bonus token; every step commits at least that.

        Args:
            proposal: What was forwarded.
            rows: The target's rows on its candidates.
            noise: The request's random numbers, read at the positions of the drawn tokens.
        """
        ...


def descend(tree: TokenTree, choose: Callable[[int], tuple[int, float | None]]) -> Verdict:
    """Return the verdict of a rule that settles one token per node.

    The token after a node decides: the walk goes on below the child that carries it, whether the
    rule accepted this child or drew its token, and ends where no child does. Going on is right in
    both cases, as the child's row is the target's after exactly these tokens.

    Args:
        tree: The candidates.
        choose: Returns the token that follows a node, and its margin or None.
    """
    path = [0]
    margins = []
    while True:
        token, margin = choose(path[-1])
        if margin is not None:
            margins.append(margin)
        child = tree.children(path[-1]).get(token)
        if child is None:
            return Verdict(tuple(path), token, tuple(margins))
        path.append(child)
