"""The token tree: everything a drafter proposes and a verifier accepts is a path in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from specdec_core.errors import ConfigError

_NO_CHILDREN: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Nodes in parent-before-child order; node 0 is the root, the last committed token.

    A chain is a tree with one child per node; "nothing to propose" is the root alone.

    Attributes:
        tokens: Token id of every node, length N.
        parents: Parent node of every node, length N; -1 for the root, ``parents[i] < i``.
        depths: Edges between the root and every node, length N.

    Raises:
        ConfigError: if the arrays differ in length, are empty, or a parent does not come before
            its child.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...] = field(init=False, compare=False, repr=False)
    _children: dict[int, dict[int, int]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.parents) or self.parents[0] != -1:
            raise ConfigError(
                f"token tree has {len(self.tokens)} tokens and parents {self.parents}: give one "
                "parent per token, -1 for the root in front"
            )
        depths = [0]
        children: dict[int, dict[int, int]] = {}
        for node in range(1, len(self.tokens)):
            parent = self.parents[node]
            if not 0 <= parent < node:
                raise ConfigError(
                    f"node {node} of the token tree has parent {parent}: parents must come before "
                    "their children"
                )
            depths.append(depths[parent] + 1)
            children.setdefault(parent, {}).setdefault(self.tokens[node], node)
        object.__setattr__(self, "depths", tuple(depths))
        object.__setattr__(self, "_children", children)

    @classmethod
    def root_only(cls, root: int) -> TokenTree:
        """Return the tree that proposes nothing after the token `root`."""
        return cls((root,), (-1,))

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int]) -> TokenTree:
        """Return the tree with the single path `root`, then `tokens`."""
        return cls((root, *tokens), tuple(range(-1, len(tokens))))

    def __len__(self) -> int:
        """Return the number of nodes N, root included."""
        return len(self.tokens)

    @property
    def num_drafted(self) -> int:
        """Draft nodes, root not counted."""
        return len(self.tokens) - 1

    @property
    def max_depth(self) -> int:
        """Draft tokens on the longest path; 0 for the root alone."""
        return max(self.depths)

    def children(self, node: int) -> Mapping[int, int]:
        """Return the children of `node` as a map from token id to node."""
        return self._children.get(node, _NO_CHILDREN)

    def ancestors(self) -> npt.NDArray[np.bool_]:
        """Return the [N, N] matrix that is True where column is row itself or above it.

        Row i is what node i may attend to inside the tree.
        """
        matrix = np.eye(len(self.tokens), dtype=np.bool_)
        for node, parent in enumerate(self.parents[1:], start=1):
            matrix[node, :node] = matrix[parent, :node]
        return matrix

    def validate(self, vocab_size: int, *, author: str = "the drafter") -> None:
        """Check what only a faulty drafter gets wrong; `author` names it in the message.

        Raises:
            ConfigError: if a token id is outside the vocabulary, or siblings share a token.
        """
        self.check_ids(vocab_size, author=author)
        if sum(map(len, self._children.values())) != self.num_drafted:
            raise ConfigError(
                f"{author} proposed siblings with the same token (tokens {self.tokens}, parents "
                f"{self.parents}): merge duplicates before proposing"
            )

    def check_ids(self, vocab_size: int, *, author: str = "the drafter") -> None:
        """Check the token ids alone.

        Raises:
            ConfigError: if one is outside the vocabulary.
        """
        if min(self.tokens) < 0 or max(self.tokens) >= vocab_size:
            wrong = next(token for token in self.tokens if not 0 <= token < vocab_size)
            raise ConfigError(
                f"{author} proposed token id {wrong}, but the target has ids 0 to "
                f"{vocab_size - 1}: use a drafter made for this vocabulary"
            )
