"""Progressive Tree Drafting as released: its pool, and the drafter."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.ptd_forest import Node, ReleasedForest
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.randomness import numpy_generator
from specdec_core.tree.token_tree import TokenTree

_KEY_NODES = 60
_MOST_NODES = 512
_MOST_DRAFTING = 256


class ReleasedPool:
    """One tree per token: what was drafted behind it, and what the target said when it was used."""

    def __init__(self) -> None:
        self.trees: dict[int, Node] = {}

    def merge(self, node: Node) -> None:
        """Add what stands below a draft node, and its drafts; too large a tree loses one branch."""
        tree = self.trees.setdefault(node.token, Node(node.token))
        open_pairs = [(tree, node)]
        while open_pairs:
            mine, other = open_pairs.pop()
            for token, child in other.children.items():
                open_pairs.append((mine.child(token), child))
            if other.draft is not None:
                mine.child(other.draft)
        if sum(1 for _ in tree.walk()) > _KEY_NODES:
            del tree.children[next(iter(tree.children))]

    def expand(self, token: int, rows: Sequence[tuple[tuple[int, ...], int]]) -> None:
        """Add the target's token behind every node of a tree that was verified.

        Args:
            token: Key of the tree.
            rows: Path from the key and the target's token behind it, for every node.
        """
        for path, best in rows:
            node = self.trees[token]
            for step in path:
                node = node.child(step)
            node.child(best)


class ReleasedPtd:
    """Verifies the pool's whole tree of the last token while the forest grows.

    The forest rides along with the prompt too. The pool takes drafts only in steps whose forest
    has all its levels: those below the next root first, then the others. A verified tree gains
    the target's token behind every node, itself alone.

    Source: Progressive Tree Drafting, greedy search of its code with its default configuration.
    """

    def __init__(self, prompts: PromptPass, width: int = 4, depth: int = 6) -> None:
        self._prompts = prompts
        self._forest = ReleasedForest(width, depth)
        self.needs = DrafterNeeds(
            max_nodes=_MOST_NODES, max_drafting=_MOST_DRAFTING, rows="all", top_k=1
        )

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request with an empty pool; the forest grows once behind the prompt."""
        generator = numpy_generator(seed, "released ptd")
        self._forest.plant(
            lambda: prompt[int(generator.integers(0, len(prompt)))],
            lambda: int(generator.integers(1, 3)),
        )
        self._pool = ReleasedPool()
        rows = self._prompts.rankings_behind(prompt, self._forest.tree(prompt[-1]), 1)
        self._forest.take([row[0] for row in rows[1:]])
        self._advance(rows[0][0], rows[0][0])

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the pool's tree of the last token, and the forest."""
        root = sequence[-1]
        tokens, parents = [root], [-1]
        key = self._pool.trees.get(root)
        level = [] if key is None else [(key, 0)]
        for _ in range(budget.max_depth):
            level = [(child, place) for node, place in level for child in node.children.values()]
            level = level[: _MOST_NODES + 1 - len(tokens)]
            places = range(len(tokens), len(tokens) + len(level))
            tokens += [node.token for node, _ in level]
            parents += [place for _, place in level]
            level = [(node, place) for (node, _), place in zip(level, places, strict=True)]
        return Proposal(TokenTree(tuple(tokens), tuple(parents)), self._forest.tree(root))

    def observe(self, outcome: StepOutcome) -> None:
        """Teach the pool, then let the forest grow."""
        if outcome.proposal is None:
            return
        candidates = outcome.proposal.candidates
        if candidates.num_drafted:
            self._pool.expand(candidates.tokens[0], _verified(candidates, outcome))
        if outcome.drafting_top_k:
            self._forest.take([row[0] for row in outcome.drafting_top_k[1:]])
            self._advance(outcome.committed[0], outcome.committed[-1])

    def _advance(self, next_token: int, root: int) -> None:
        """Merge what the forest drafted, the next root's part first, and grow."""
        if self._forest.is_full_grown:
            nodes = list(self._forest.root.walk())
            for node in [n for n in nodes if n.token == root] + [
                n for n in nodes if n.token != root
            ]:
                self._pool.merge(node)
        self._forest.advance(next_token)


def _verified(tree: TokenTree, outcome: StepOutcome) -> list[tuple[tuple[int, ...], int]]:
    """Return path and first choice behind every candidate node, in their order."""
    paths: list[tuple[int, ...]] = [()]
    for node in range(1, len(tree)):
        paths.append((*paths[tree.parents[node]], tree.tokens[node]))
    rows = sorted(zip(outcome.row_nodes, outcome.top_k, strict=True))
    return [(paths[node], ranking[0]) for node, ranking in rows if node]
