"""Trees as text, ``parent(children)`` in the order they were added, and as sets of paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Nested = tuple[int, list["Nested"]]


def show(node: Any) -> str:
    """Return a draft or pool node and what is below it as text."""
    inner = " ".join(show(child) for child in node.children.values())
    return f"{node.token}({inner})" if inner else str(node.token)


def read(text: str) -> Nested:
    """Return the tree that `show` would write as `text`."""
    stack: list[Nested] = [(-1, [])]
    for part in re.findall(r"\d+|[()]", text):
        if part == "(":
            stack.append(stack[-1][1][-1])
        elif part == ")":
            stack.pop()
        else:
            stack[-1][1].append((int(part), []))
    return stack[0][1][0]


def write(tree: Nested) -> str:
    token, children = tree
    inner = " ".join(map(write, children))
    return f"{token}({inner})" if inner else str(token)


def merged(a: Nested, b: Nested) -> Nested:
    """Return M(a, b) by the paper's recursion, whole sub-trees copied."""
    token, children = a
    result = list(children)
    for child in b[1]:
        tokens = [own[0] for own in result]
        if child[0] in tokens:
            place = tokens.index(child[0])
            result[place] = merged(result[place], child)
        else:
            result.append(child)
    return token, result


def paths(tree: Nested) -> Iterator[tuple[int, ...]]:
    """Yield the path from the root to every node, in depth-first order."""
    token, children = tree
    yield (token,)
    for child in children:
        yield from ((token, *path) for path in paths(child))


def sub_trees(tree: Nested) -> Iterator[Nested]:
    """Yield the tree below every node, in depth-first order."""
    yield tree
    for child in tree[1]:
        yield from sub_trees(child)
