"""The draft pool: for every token the tree of what was drafted or written after it."""

from __future__ import annotations

from collections.abc import Sequence


class PoolNode:
    """A token in a pool tree.

    Attributes:
        token: Its id.
        children: What followed it, in the order it was added or last confirmed.
        hits: Times the output went on to this node.
        tries: Times the output went on from this node.
        born: `tries` of the parent when this node was added.
        stamp: When it was added or last confirmed, in counts of the pool.
    """

    __slots__ = ("born", "children", "hits", "stamp", "token", "tries")

    def __init__(self, token: int, born: int = 0, stamp: int = 0) -> None:
        self.token = token
        self.children: dict[int, PoolNode] = {}
        self.hits = 0
        self.tries = 0
        self.born = born
        self.stamp = stamp

    def size(self) -> int:
        """Return the number of nodes below this one."""
        num, stack = 0, [self]
        while stack:
            children = stack.pop().children
            num += len(children)
            stack.extend(children.values())
        return num


class _Tree:
    """A pool tree and the number of its nodes, root not counted."""

    __slots__ = ("root", "size")

    def __init__(self, token: int) -> None:
        self.root = PoolNode(token)
        self.size = 0


class DraftPool:
    """Trees of continuations by their first token.

    The merge operator of the paper adds to a tree what another with the same root has beyond it
    and leaves the order of what is there; `add` merges one path, and a tree is the merge of its
    paths. Paths of the output are confirmed as well: they count, and move behind their siblings,
    so that the first child is always the one not confirmed for longest.

    Source: Progressive Tree Drafting, sections on the draft pool and its merge operator; bounds
    from its released code, order and counts are ours.

    Args:
        key_nodes: Most nodes of a tree, root not counted; 0 for any number.
        pool_nodes: Most nodes of all trees; beyond it the trees not added to for longest go. 0
            for any number.
        is_single_drop: Whether a tree above its bound loses one branch per merge instead of as
            many as it must.
    """

    def __init__(
        self, key_nodes: int = 0, pool_nodes: int = 0, *, is_single_drop: bool = False
    ) -> None:
        self._key_nodes = key_nodes
        self._pool_nodes = pool_nodes
        self._is_single_drop = is_single_drop
        # Least recently used first.
        self._trees: dict[int, _Tree] = {}
        self._size = 0
        self._clock = 0

    def __len__(self) -> int:
        """Return the number of nodes of all trees, roots not counted."""
        return self._size

    def clear(self) -> None:
        """Forget everything."""
        self._trees.clear()
        self._size = 0
        self._clock = 0

    def find(self, path: Sequence[int]) -> PoolNode | None:
        """Return the node at the end of a path, its first token the root; None if absent."""
        tree = self._trees.get(path[0])
        node = None if tree is None else tree.root
        for token in path[1:]:
            if node is None:
                return None
            node = node.children.get(token)
        return node

    def add(self, path: Sequence[int]) -> None:
        """Merge a path of two tokens or more into the tree of its first token."""
        tree = self._tree(path[0])
        self._walk(tree, path, 1, len(path))
        if tree.size > self._key_nodes or self._size > self._pool_nodes:
            self._bound(tree)

    def add_suffixes(self, path: Sequence[int]) -> None:
        """Merge a path into the tree of every token on it but the last.

        This is where a step spends its time: once per drafted token and ancestor.
        """
        length = len(path)
        for start in range(1, length):
            tree = self._tree(path[start - 1])
            self._walk(tree, path, start, length)
            if tree.size > self._key_nodes or self._size > self._pool_nodes:
                self._bound(tree)

    def confirm(self, path: Sequence[int]) -> None:
        """Merge the end of the output into the trees of all its tokens, and count its last edge.

        Args:
            path: Last tokens of the output; all but the last were confirmed before.
        """
        self._clock += 1
        for start in range(len(path) - 1):
            tree = self._tree(path[start])
            parent = self._walk(tree, path, start + 1, len(path) - 1)
            node = parent.children.pop(path[-1], None) or self._new(tree, parent, path[-1])
            parent.children[node.token] = node
            parent.tries += 1
            node.hits += 1
            node.stamp = self._clock
            self._bound(tree)

    def _tree(self, token: int) -> _Tree:
        """Return the tree of a token, made if absent, as the most recently used."""
        tree = self._trees.pop(token, None) or _Tree(token)
        self._trees[token] = tree
        return tree

    def _walk(self, tree: _Tree, path: Sequence[int], start: int, stop: int) -> PoolNode:
        """Return the node behind ``path[start:stop]`` below the root of a tree, made if absent."""
        node = tree.root
        for index in range(start, stop):
            token = path[index]
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = self._new(tree, node, token)
            node = child
        return node

    def _new(self, tree: _Tree, parent: PoolNode, token: int) -> PoolNode:
        tree.size += 1
        self._size += 1
        return PoolNode(token, parent.tries, self._clock)

    def _bound(self, tree: _Tree) -> None:
        """Drop what is too much."""
        while self._key_nodes and tree.size > self._key_nodes:
            self._drop_oldest(tree)
            if self._is_single_drop:
                break
        while self._pool_nodes and self._size > self._pool_nodes:
            oldest = next(iter(self._trees))
            self._size -= self._trees.pop(oldest).size

    def _drop_oldest(self, tree: _Tree) -> None:
        """Drop the first child of the root, or of the first node below it with two children."""
        node = tree.root
        while not self._is_single_drop and len(node.children) == 1:
            (child,) = node.children.values()
            if not child.children:
                break
            node = child
        dropped = node.children.pop(next(iter(node.children)))
        num = 1 + dropped.size()
        tree.size -= num
        self._size -= num
