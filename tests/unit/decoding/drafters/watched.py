"""A drafter of progressive trees under observation, and what its pool and forests hold."""

from dataclasses import dataclass, field

from specdec_core.config.ptd import Ptd
from specdec_core.decoding import (
    DraftBudget,
    DrafterContext,
    generate,
    make_drafter,
)
from tests.doubles import path_tokens
from tests.unit.decoding.progressive.notation import paths, read, show

WIDE = DraftBudget(1024, 64)
# The pool of drafts alone, from the first step on, bounded by nothing.
DRAFTS_ONLY = {
    "verified": "off",
    "confirm": False,
    "order": "insertion",
    "cap": "none",
    "fallback": "none",
    "candidates": 1024,
}


@dataclass
class Watched:
    """A drafter, and everything it was asked and told."""

    drafter: object
    proposals: list = field(default_factory=list)
    outcomes: list = field(default_factory=list)

    @property
    def needs(self):
        return self.drafter.needs

    def reset(self, prompt, seed=0):
        self.drafter.reset(prompt, seed)

    def propose(self, sequence, budget):
        self.proposals.append(self.drafter.propose(sequence, budget))
        return self.proposals[-1]

    def observe(self, outcome):
        self.outcomes.append(outcome)
        self.drafter.observe(outcome)


def watched(eos_ids=(), **options):
    return Watched(make_drafter(Ptd(**options), DrafterContext(eos_ids=frozenset(eos_ids))))


def decode(view, drafter, prompt=(1, 2, 3), limit=40, **options):
    (result,) = generate(view, [prompt], [drafter], max_new_tokens=limit, eos_ids=(), **options)
    return result


def as_nested(tree, node=0):
    children = [i for i in range(len(tree)) if tree.parents[i] == node]
    return tree.tokens[node], [as_nested(tree, child) for child in children]


def pool_paths(drafter):
    """Return all paths in the pool of a drafter, as (first token, ..)."""
    pool = drafter._pool
    found = set()
    for token in range(16):
        node = pool.find([token])
        if node is not None:
            found |= {path for path in paths(read(show(node))) if len(path) > 1}
    return found


def drafted_paths(outcome):
    """Return every path inside a forwarded unstaggered forest and its fresh tokens."""
    tree = outcome.proposal.drafting
    found = set()
    for node in range(1, len(tree)):
        path = (*path_tokens(tree, node)[1:], outcome.drafting_top_k[node][0])
        found |= {path[i:j] for i in range(len(path)) for j in range(i + 2, len(path) + 1)}
    return found
