"""A proposal: the tokens to verify, and those that only ride along in the target's forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_core.tree.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter wants the target to look at in one step.

    Methods that draft inside the target's own forward send along a second tree under the same
    root. Its nodes see the committed tokens, the root and their own ancestors; candidates never
    see them, they are never accepted, and their cache rows are dropped with the step. Columns of
    a lookahead window and staggered sub-trees are such trees: a column hangs below the tokens it
    assumes. Siblings of the drafting tree may carry the same token.

    Attributes:
        candidates: Tree to verify; its root is the last committed token.
        drafting: Tree that rides along, with the same root token; None for nothing.
    """

    candidates: TokenTree
    drafting: TokenTree | None = None

    @classmethod
    def nothing(cls, root: int) -> Proposal:
        """Return the proposal of nothing after the token `root`."""
        return cls(TokenTree.root_only(root))

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int]) -> Proposal:
        """Return the proposal of the single continuation `tokens` after the token `root`."""
        return cls(TokenTree.chain(root, tokens))

    @property
    def num_drafting(self) -> int:
        """Nodes that ride along, root not counted."""
        return 0 if self.drafting is None else self.drafting.num_drafted

    def forward_tree(self) -> TokenTree:
        """Return the tree of one forward: candidates first, then drafting nodes, one root."""
        if self.drafting is None or self.drafting.num_drafted == 0:
            return self.candidates
        offset = self.candidates.num_drafted
        parents = (parent + offset if parent else 0 for parent in self.drafting.parents[1:])
        return TokenTree(
            self.candidates.tokens + self.drafting.tokens[1:],
            (*self.candidates.parents, *parents),
        )

    def drafting_rows(self) -> tuple[int, ...]:
        """Return the node of `forward_tree` for every node of the drafting tree, root first."""
        if self.num_drafting == 0:
            return ()
        first = len(self.candidates)
        return (0, *range(first, first + self.num_drafting))
