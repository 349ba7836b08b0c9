"""The draft forest of Progressive Tree Drafting as released."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from specdec_core.tree.token_tree import TokenTree

Draw = np.random.Generator
_NUM_CHAINS = 2
_CHAIN_LENGTH = 2
_CUT_TOKEN = 2
_CUT_CLIMB = 4


class Node:
    """A token, what was drafted behind it in the order it came, and its newest draft."""

    __slots__ = ("children", "draft", "token")

    def __init__(self, token: int) -> None:
        self.token = token
        self.children: dict[int, Node] = {}
        self.draft: int | None = None

    def child(self, token: int) -> Node:
        """Return the child with this token, added last if there is none."""
        return self.children.setdefault(token, Node(token))

    def walk(self) -> Iterator[Node]:
        """Yield all nodes below, a node before its children, children in their order."""
        for child in self.children.values():
            yield child
            yield from child.walk()

    @property
    def levels(self) -> int:
        """Nodes on the longest path below this one."""
        return max((1 + child.levels for child in self.children.values()), default=0)


class ReleasedForest:
    """Sub-trees below a root that is never forwarded; each top hangs behind the one before it.

    Args:
        width: Most children of a node, and sub-trees.
        depth: Edges below a top that make its sub-tree step down.
    """

    def __init__(self, width: int, depth: int) -> None:
        self._width, self._depth = width, depth
        self.root = Node(-1)

    @property
    def is_full_grown(self) -> bool:
        """Whether a sub-tree has `depth` levels: only then does the pool take drafts."""
        return self.root.levels >= self._depth

    def plant(self, draw: Callable[[], int], length: Callable[[], int]) -> None:
        """Begin with two chains of drawn tokens, the second with another top where one is found."""
        self.root = Node(-1)
        for _ in range(_NUM_CHAINS):
            token = draw()
            for _ in range(64):
                if token not in self.root.children:
                    break
                token = draw()
            node = self.root.child(token)
            for _ in range(1, length()):
                node = node.child(draw())

    def tree(self, root: int) -> TokenTree:
        """Return the tokens to forward, in the order of `Node.walk`."""
        tokens, parents = [root], [-1]

        def add(node: Node, parent: int) -> int:
            place = len(tokens)
            tokens.append(node.token)
            parents.append(parent)
            for child in node.children.values():
                add(child, place)
            return place

        above = 0
        for top in self.root.children.values():
            above = add(top, above)
        return TokenTree(tuple(tokens), tuple(parents))

    def take(self, drafts: list[int]) -> None:
        """Note the token drafted behind every node, in the order of `Node.walk`."""
        for node, token in zip(list(self.root.walk()), drafts, strict=True):
            node.draft = token

    def advance(self, next_token: int) -> None:
        """Grow by the drafts, add a missing sub-tree, step down, cut the end of text."""
        for node in list(self.root.walk()):
            assert node.draft is not None
            if len(node.children) < self._width:
                node.child(node.draft)
        self._refill(next_token)
        for top in list(self.root.children.values()):
            if top.levels >= self._depth:
                self._step_down(top)
        self._cut()

    def _refill(self, next_token: int) -> None:
        tops = self.root.children
        if len(tops) >= self._width:
            return
        if not tops:
            self.root.child(next_token)
            return
        last = list(tops.values())[-1]
        assert last.draft is not None
        last.children.pop(last.draft, None)
        self.root.child(last.draft)

    def _step_down(self, top: Node) -> None:
        """Let the earliest child that is no top yet take the place, behind all other tops."""
        tops = self.root.children
        heir = next((child for child in top.children.values() if child.token not in tops), None)
        del tops[top.token]
        if heir is not None:
            tops[heir.token] = heir

    def _cut(self) -> None:
        """Remove the branch, from four levels above or its top on, of every token 2."""
        while (path := self._path_to_cut(self.root, [])) is not None:
            branch = max(1, len(path) - 1 - _CUT_CLIMB)
            del path[branch - 1].children[path[branch].token]

    def _path_to_cut(self, node: Node, above: list[Node]) -> list[Node] | None:
        path = [*above, node]
        if node.token == _CUT_TOKEN:
            return path
        for child in node.children.values():
            found = self._path_to_cut(child, path)
            if found is not None:
                return found
        return None
