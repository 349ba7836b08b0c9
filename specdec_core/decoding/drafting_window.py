"""The two-dimensional window of lookahead decoding: columns drafted inside the target's forward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from specdec_core.tree.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a window as it was forwarded.

    Attributes:
        tokens: Its own prefix and its token of every level, from the top; the prefix of column 0
            is the root.
        nodes: Their nodes in the drafting tree.
    """

    tokens: tuple[int, ...]
    nodes: tuple[int, ...]


@dataclass(slots=True)
class DraftingWindow:
    """Columns of guessed tokens; each forward makes a new last token for every column.

    Column 0 begins right after the root, column i after its prefix ``prefixes[i - 1]``. Level l
    holds the l-th token of every column below that. While levels are missing, a forward adds one
    and drops the first column; from then on it drops the first level, whose tokens move into the
    prefixes. The window therefore moves on by one token per step, however many were accepted.

    Source: Lookahead Decoding, the lookahead branch (chained prefixes: column i assumes the
    prefixes of the columns before it, so it lies i tokens further on); Self-Draft, draft branches
    (every prefix hangs directly below the root).

    Attributes:
        prefixes: Tokens in front of column 1, 2, ..; never empty ones.
        num_levels: Levels of the full window; may be 0.
        is_chained: Whether every prefix continues the one before it instead of the root.
        levels: Tokens per level, one for every column.
    """

    prefixes: list[list[int]]
    num_levels: int
    is_chained: bool
    levels: list[list[int]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """Whether all levels are there."""
        return len(self.levels) == self.num_levels

    def tree(self, root: int) -> TokenTree:
        """Return the drafting tree: the prefixes, then level by level, each below its column."""
        tokens, parents, ends = [root], [-1], [0]
        for prefix in self.prefixes:
            end = ends[-1] if self.is_chained else 0
            for token in prefix:
                parents.append(end)
                end = len(tokens)
                tokens.append(token)
            ends.append(end)
        for level in self.levels:
            parents.extend(ends)
            ends = list(range(len(tokens), len(tokens) + len(level)))
            tokens.extend(level)
        return TokenTree(tuple(tokens), tuple(parents))

    def columns(self, root: int) -> list[Column]:
        """Return every column with its nodes in `tree`."""
        num_columns = len(self.prefixes) + 1
        starts = range(1 + sum(map(len, self.prefixes)), len(self), num_columns)
        columns, first = [], 0
        for index, prefix in enumerate([[root], *self.prefixes]):
            own = range(first, first + len(prefix))
            tokens = (*prefix, *(level[index] for level in self.levels))
            columns.append(Column(tokens, (*own, *(start + index for start in starts))))
            first = own.stop
        return columns

    def advance(self, newest: Sequence[int]) -> None:
        """Take up the tokens that follow the last node of every column."""
        if not self.is_full:
            del self.prefixes[0]
            self.levels = [list(level[1:]) for level in (*self.levels, newest)]
            return
        levels = [*self.levels, list(newest)]
        for prefix, token in zip(self.prefixes, levels[0][1:], strict=True):
            prefix.append(token)
            del prefix[0]
        self.levels = levels[1:]

    def __len__(self) -> int:
        """Return the number of nodes of `tree`, root included."""
        prefix_tokens = sum(map(len, self.prefixes))
        return 1 + prefix_tokens + len(self.levels) * (len(self.prefixes) + 1)


class PromptTokens:
    """Random tokens of a prompt: what a window starts with, and what fills its gaps.

    Tokens that end an output are no seeds, as nothing of use follows them; a prompt of nothing
    else is used as it is.
    """

    def __init__(
        self, prompt: Sequence[int], eos_ids: Collection[int], generator: np.random.Generator
    ) -> None:
        self._eos_ids = eos_ids
        self._tokens = [token for token in prompt if token not in eos_ids] or list(prompt)
        self._generator = generator

    def pick(self, num: int) -> list[int]:
        """Return `num` tokens drawn with replacement."""
        picks = self._generator.integers(0, len(self._tokens), num)
        return [self._tokens[pick] for pick in picks.tolist()]

    def replace_eos(self, tokens: Sequence[int]) -> list[int]:
        """Return `tokens` with a random prompt token in place of each that ends an output."""
        return [self.pick(1)[0] if token in self._eos_ids else token for token in tokens]


def most_drafting_nodes(num_columns: int, num_levels: int, prefix_len: int = 1) -> int:
    """Return the most nodes a window of these sizes forwards, the root not counted.

    Args:
        num_columns: Columns of the full window.
        num_levels: Its levels below the prefixes.
        prefix_len: Longest prefix of the columns that stay; those dropped while levels are
            missing have one token.
    """
    return max(
        (num_levels - done)
        + (num_columns - 1) * prefix_len
        + done * (num_columns + num_levels - done)
        for done in range(num_levels + 1)
    )
