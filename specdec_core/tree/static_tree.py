"""Static tree shapes: which ranks to draft at which depth for a given node budget."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specdec_core.errors import ConfigError

RankPath: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StaticTree:
    """A tree shape without tokens, breadth first; node 0 is the root.

    Attributes:
        parents: Parent node of every node, -1 for the root, length N.
        ranks: Which of its parent's successors a node is, 0 the most likely; -1 for the root.
        depths: Edges from the root, non-decreasing, so that every prefix is a valid tree.
    """

    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    depths: tuple[int, ...]

    @classmethod
    def of(cls, paths: Sequence[RankPath]) -> StaticTree:
        """Return the shape whose draft nodes are reached by `paths` of ranks.

        Raises:
            ConfigError: if a path repeats or the path to its parent is missing.
        """
        ordered = sorted(paths, key=lambda path: (len(path), path))
        nodes: dict[RankPath, int] = {(): 0}
        for path in ordered:
            if path in nodes or path[:-1] not in nodes:
                raise ConfigError(
                    f"tree path {path} repeats or has no parent path: name every node once, "
                    "together with all its ancestors"
                )
            nodes[path] = len(nodes)
        return cls(
            parents=(-1, *(nodes[path[:-1]] for path in ordered)),
            ranks=(-1, *(path[-1] for path in ordered)),
            depths=(0, *(len(path) for path in ordered)),
        )


def best_static_tree(acceptance: Sequence[Sequence[float]], num_nodes: int) -> StaticTree:
    """Return the tree of at most `num_nodes` draft nodes with the most expected accepted tokens.

    A node is accepted with the product of the chances along its path, so the expectation is the
    sum of these products. A product never grows along a path; therefore taking the largest ones
    first always has the ancestors inside, and is optimal. Ties go to the shallower, then to the
    lower-ranked path.

    Args:
        acceptance: ``acceptance[d][r]`` is the chance in [0, 1] that the child of rank r at depth
            d + 1 is right when its parent was. Its length is the largest depth.
        num_nodes: Draft nodes, root not counted.

    Source: Medusa, section on optimised trees, with a depth by rank table.
    """
    _check_table(acceptance)
    open_paths: list[tuple[float, int, RankPath]] = [(-1.0, 0, ())]
    chosen: list[RankPath] = []
    while open_paths and len(chosen) <= num_nodes:
        negative, depth, path = heapq.heappop(open_paths)
        chosen.append(path)
        if depth < len(acceptance):
            for rank, chance in enumerate(acceptance[depth]):
                heapq.heappush(open_paths, (negative * chance, depth + 1, (*path, rank)))
    return StaticTree.of(chosen[1:])


def profile_static_tree(
    acceptance: Sequence[Sequence[float]], depth_counts: Sequence[int]
) -> StaticTree:
    """Return the tree with `depth_counts` nodes per depth and the most expected accepted tokens.

    At each depth the children of the nodes chosen above compete by the product of the chances
    along their path.

    Args:
        acceptance: As in `best_static_tree`.
        depth_counts: Draft nodes wanted at depth 1, 2, and so on; at most the table's depth.
    """
    _check_table(acceptance)
    level: list[tuple[float, RankPath]] = [(-1.0, ())]
    chosen: list[RankPath] = []
    for chances, count in zip(acceptance, depth_counts, strict=False):
        level = sorted(
            (negative * chance, (*path, rank))
            for negative, path in level
            for rank, chance in enumerate(chances)
        )[:count]
        chosen.extend(path for _, path in level)
    return StaticTree.of(chosen)


def _check_table(acceptance: Sequence[Sequence[float]]) -> None:
    for chances in acceptance:
        if not all(0.0 <= chance <= 1.0 for chance in chances):
            raise ConfigError(
                f"acceptance table has the row {list(chances)}: chances are in [0, 1]"
            )
