"""A proposal: the tokens to verify, and those that only ride along in the target's forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch

from specdec_core.errors import ConfigError
from specdec_core.tree.token_tree import TokenTree


@dataclass(frozen=True, slots=True, eq=False)
class SampledChildren:
    """How the children of one node were drawn; says that they are samples, not chosen tokens.

    Whether the node is expanded, and how many children are drawn, must be decided before they are
    drawn: from anything drawn before, never from the children themselves. Dropping a child for the
    token it turned out to carry makes the output biased, whatever the rule. Drawing fewer, in the
    same order, is fine.

    Attributes:
        order: Child nodes in the order they were drawn, at least one; a token drawn again (only
            with replacement) stands here again, while the tree holds one node for it.
        distribution: [V'] probabilities of the first draw, any floating dtype and scale, at least
            0; ids that it lacks or that the target lacks count as probability 0.
        with_replacement: Whether all draws came from `distribution`; otherwise every drawn token
            was removed from it and the rest renormalised.
    """

    order: tuple[int, ...]
    distribution: torch.Tensor  # [V']
    with_replacement: bool = False

    def __eq__(self, other: object) -> bool:
        """Return whether order, kind and every probability are the same."""
        if not isinstance(other, SampledChildren):
            return NotImplemented
        same = (self.order, self.with_replacement) == (other.order, other.with_replacement)
        return same and torch.equal(self.distribution, other.distribution)

    __hash__ = None  # type: ignore[assignment]  # compares a tensor


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
        sampled: How the children of a candidate node were drawn, by that node; the children of
            absent nodes were chosen (retrieved, most likely, ..) and are point masses.
    """

    candidates: TokenTree
    drafting: TokenTree | None = None
    sampled: Mapping[int, SampledChildren] = field(
        default_factory=lambda: MappingProxyType({}), hash=False
    )

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

    def check_sampled(self, vocab_size: int, *, author: str = "the drafter") -> None:
        """Check that every sampled node tells how all its children were drawn.

        Raises:
            ConfigError: if draws and children differ, a token was drawn twice without
                replacement, or a distribution has mass outside the target's vocabulary.
        """
        for node, drawn in self.sampled.items():
            children = set(self.candidates.children(node).values())
            is_repeated = len(set(drawn.order)) < len(drawn.order)
            if not drawn.order or set(drawn.order) != children:
                raise ConfigError(
                    f"{author} says that the children of node {node} were drawn as {drawn.order}, "
                    f"but they are {sorted(children)}: list every draw, and only draws"
                )
            if is_repeated and not drawn.with_replacement:
                raise ConfigError(
                    f"{author} drew children {drawn.order} of node {node} without replacement: "
                    "each can be drawn once"
                )
            outside = drawn.distribution[vocab_size:]
            if bool((outside > 0).any()):
                raise ConfigError(
                    f"{author} drew the children of node {node} from a distribution with mass "
                    f"behind the target's {vocab_size} ids: cut it to them before drawing"
                )
