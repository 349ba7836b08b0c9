"""The Jacobi window of two releases, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec_core.tree.token_tree import TokenTree


@dataclass(slots=True)
class Column:
    """A prefix (none for the first column) and the tokens drafted behind it."""

    prefix: list[int]
    body: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Window:
    """Columns that gain a token per forward.

    While it fills, the first column goes with every forward, and the next one takes its place
    directly behind the root. Once a column has `num_levels` drafted tokens, its oldest one moves
    into the prefix instead, whose length stays.

    Attributes:
        columns: From the first one on.
        num_levels: Drafted tokens of a column of the full window.
        is_chained: Whether a prefix follows that of the column before (Lookahead Decoding) or the
            root (Self-Draft).
    """

    columns: list[Column]
    num_levels: int
    is_chained: bool

    @classmethod
    def begin(cls, prefixes: Sequence[list[int]], num_levels: int, *, is_chained: bool) -> Window:
        """Return the window of a first forward: prefixes alone."""
        return cls([Column([]), *map(Column, prefixes)], num_levels, is_chained)

    @property
    def is_full(self) -> bool:
        """Whether columns have all their tokens."""
        return len(self.columns[0].body) == self.num_levels

    def tree(self, root: int) -> tuple[TokenTree, list[list[int]]]:
        """Return the tokens to forward, and per column its nodes from the top, prefix included."""
        tokens, parents = [root], [-1]
        nodes: list[list[int]] = []
        above = 0
        for column in self.columns:
            own, behind = [], above if self.is_chained else 0
            for index, token in enumerate((*column.prefix, *column.body)):
                parents.append(behind)
                behind = len(tokens)
                own.append(behind)
                tokens.append(token)
                if index + 1 == len(column.prefix):
                    above = behind
            nodes.append(own)
        return TokenTree(tuple(tokens), tuple(parents)), nodes

    def last_nodes(self, root: int) -> list[int]:
        """Return the node behind which each column gains its next token."""
        _, nodes = self.tree(root)
        return [own[-1] if own else 0 for own in nodes]

    def gain(self, newest: Sequence[int]) -> None:
        """Take up one token per column."""
        was_full = self.is_full
        for column, token in zip(self.columns, newest, strict=True):
            column.body.append(token)
            if was_full:
                oldest = column.body.pop(0)
                column.prefix = [*column.prefix, oldest][1:]
        if not was_full:
            del self.columns[0]
            self.columns[0].prefix = []


def most_nodes(num_columns: int, num_levels: int, prefix_len: int) -> int:
    """Return a bound on the nodes of a window: as if all its columns were there at every level."""
    return (num_columns + num_levels) * (num_levels + prefix_len)
