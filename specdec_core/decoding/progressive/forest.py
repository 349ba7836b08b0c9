"""The draft forest: a few shallow trees the target extends by a token per node and step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from specdec_core.config.ptd import growing_tree_size
from specdec_core.tree.token_tree import TokenTree

# Levels that a cut climbs at most, from the token that ends an output.
_CUT_LEVELS = 4


class DraftNode:
    """A drafted token.

    Attributes:
        token: Its id.
        parent: The node it follows; None for the top of a sub-tree.
        children: What may follow it, in the order it was added.
        fresh: The token chosen after it last; None before any was.
    """

    __slots__ = ("children", "fresh", "parent", "token")

    def __init__(self, token: int, parent: DraftNode | None = None) -> None:
        self.token = token
        self.parent = parent
        self.children: dict[int, DraftNode] = {}
        self.fresh: int | None = None

    def path(self) -> list[int]:
        """Return the tokens from the top of the sub-tree to this node."""
        tokens = [self.token]
        node = self
        while node.parent is not None:
            node = node.parent
            tokens.append(node.token)
        tokens.reverse()
        return tokens

    def top(self) -> DraftNode:
        """Return the top of the sub-tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node


Edge: TypeAlias = tuple[DraftNode, int]


class DraftForest:
    """Sub-trees of bounded width and depth, drafted by the target's own forward.

    A step asks the target for one token after every node (`grow`) and then makes room (`advance`):
    a sub-tree that became too deep goes on as that of its top's earliest child, and one sub-tree
    that is missing is filled up. Staggered, every top hangs below the one before it: sub-tree i
    drafts what may come i tokens later.

    A leaf that grows every step makes its sub-tree deeper every step, so that none is older than
    its depth; only tokens that stay leaves let one grow beyond `growing_tree_size` of that age.
    Nodes beyond it do not ride along.

    Source: Progressive Tree Drafting, width and depth control; sub-trees, stagger, refill and the
    choice of the child from its released code. The refill takes the child's descendants along,
    which stand behind the same tokens as before; the release drops them.

    Args:
        width: Most children of a node.
        depth: Most levels of a sub-tree.
        num_trees: Most sub-trees; no two tops share a token.
        is_staggered: Whether tops form a chain.
        leaves: Tokens that are drafted but never enter the forest.
        cut_at: Tokens whose branch is removed once they are in it.
    """

    def __init__(
        self,
        width: int,
        depth: int,
        num_trees: int,
        *,
        is_staggered: bool = True,
        leaves: Collection[int] = (),
        cut_at: Collection[int] = (),
    ) -> None:
        self._width = width
        self._depth = depth
        self._num_trees = num_trees
        self._is_staggered = is_staggered
        self._leaves = leaves
        self._cut_at = cut_at
        self._tree_bound = growing_tree_size(width, depth - 1)
        self.tops: list[DraftNode] = []
        self._doomed: list[DraftNode] = []
        self._arrange()

    @property
    def is_full_grown(self) -> bool:
        """Whether a sub-tree had all its levels when the forest was last arranged."""
        return max(self._heights, default=0) >= self._depth

    def plant(self, chains: Iterable[Sequence[int]]) -> None:
        """Begin a request with these seeds; chains that begin alike share a sub-tree."""
        self.tops = []
        self._doomed = []
        for chain in chains:
            top = next((top for top in self.tops if top.token == chain[0]), None)
            if top is None:
                if len(self.tops) == self._num_trees:
                    continue
                top = DraftNode(chain[0])
                self.tops.append(top)
            for token in chain[1 : self._depth]:
                top = top.children.setdefault(token, DraftNode(token, top))
        self._arrange()

    def tree(self, root: int) -> TokenTree:
        """Return the drafting tree under the token `root`: node i + 1 is node i of `grow`."""
        return TokenTree((root, *self._tokens), (-1, *self._parents))

    def grow(self, tokens: Sequence[int]) -> list[Edge]:
        """Add the token chosen after every node of `tree`, root not counted, as its child.

        Nothing happens to nodes that have the child already; full ones stay as they are.

        Returns:
            The nodes and tokens that are no child yet, whether they became one or not.
        """
        edges: list[Edge] = []
        for index, token in enumerate(tokens):
            node = self._nodes[index]
            node.fresh = token
            if token in node.children:
                continue
            edges.append((node, token))
            if len(node.children) >= self._width or token in self._leaves:
                continue
            child = node.children[token] = DraftNode(token, node)
            tree, level = self._places[index]
            self._heights[tree] = max(self._heights[tree], level + 1)
            if token in self._cut_at:
                self._doomed.append(child)
        return edges

    def advance(self, bonus: int) -> None:
        """Bring the grown forest back into its bounds.

        Args:
            bonus: Token the next root will be; an empty forest goes on with it.
        """
        for top, height in zip(list(self.tops), self._heights, strict=True):
            if height > self._depth:
                self._promote(top)
        self._cut()
        if len(self.tops) < self._num_trees:
            self._refill(bonus)
        self._arrange()

    def kept(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return the edges that are still in the forest."""
        tops = set(map(id, self.tops))
        return [
            (node, token)
            for node, token in edges
            if token in node.children and id(node.top()) in tops
        ]

    def _promote(self, top: DraftNode) -> None:
        """Put its earliest child that is no top yet, with all descendants, in place of `top`.

        It moves to the end of the tops; without such a child the sub-tree ends.
        """
        self.tops.remove(top)
        taken = {other.token for other in self.tops}
        heir = next((child for child in top.children.values() if child.token not in taken), None)
        if heir is not None:
            heir.parent = None
            self.tops.append(heir)

    def _cut(self) -> None:
        """Remove the branches that hold a token of `cut_at`."""
        for branch in self._doomed:
            for _ in range(_CUT_LEVELS):
                branch = branch.parent or branch
            if branch.parent is not None:
                branch.parent.children.pop(branch.token, None)
            elif branch in self.tops:
                self.tops.remove(branch)
        self._doomed = []

    def _refill(self, bonus: int) -> None:
        """Add the sub-tree that begins with what follows the last top."""
        if not self.tops:
            if bonus not in self._leaves:
                self.tops.append(DraftNode(bonus))
            return
        last = self.tops[-1]
        token = last.fresh
        if token is None or token in self._leaves or any(top.token == token for top in self.tops):
            return
        top = last.children.pop(token, None) or DraftNode(token)
        top.parent = None
        self.tops.append(top)

    def _arrange(self) -> None:
        """Line the nodes up, sub-tree by sub-tree, parents before children."""
        self._nodes: list[DraftNode] = []
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._places: list[tuple[int, int]] = []  # sub-tree and level, the top's is 1
        self._heights: list[int] = []
        above = 0
        for tree, top in enumerate(self.tops):
            first = len(self._nodes) + 1
            height = 0
            stack = [(top, above, 1)]
            while stack and len(self._nodes) + 1 - first < self._tree_bound:
                node, parent, level = stack.pop()
                self._nodes.append(node)
                self._tokens.append(node.token)
                self._parents.append(parent)
                self._places.append((tree, level))
                height = max(height, level)
                index = len(self._nodes)
                for child in reversed(node.children.values()):
                    stack.append((child, index, level + 1))
            self._heights.append(height)
            above = first if self._is_staggered else 0
