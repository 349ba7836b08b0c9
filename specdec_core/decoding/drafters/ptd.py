"""Progressive Tree Drafting: the target extends a draft forest while it verifies a pool's tree."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from specdec_core.config.drafters import PromptLookup
from specdec_core.config.ptd import Ptd
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.drafters.prompt_lookup import PromptLookupDrafter
from specdec_core.decoding.progressive.expansion import drawn_choices, first_choices
from specdec_core.decoding.progressive.forest import DraftForest, Edge
from specdec_core.decoding.progressive.pool import DraftPool
from specdec_core.decoding.progressive.retrieval import retrieve
from specdec_core.decoding.progressive.seeds import entity_seeds, random_seeds
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.randomness import numpy_generator
from specdec_core.tree.token_tree import TokenTree

logger = logging.getLogger(__name__)


@register(Ptd)
class PtdDrafter:
    """Verifies what the pool has for the last token while the forest drafts for the pool.

    A step forwards the root, the candidates and the forest. Afterwards every forest node gains
    the token chosen after it; all paths that end in such tokens enter the pool, under each of
    their tokens; then the forest is brought back into its bounds. Requests share nothing.

    Source: Progressive Tree Drafting, algorithm 1, and its released code. Where we differ from
    both: the forest rides along from the first step after the prefill on, and not in a step after
    which nothing can be drafted any more; the committed path does not repeat the root; depth is
    bounded per sub-tree; children that were rejected are removed from the whole distribution and
    the rest is drawn from, so that every profile is lossless at any temperature, where the release
    takes the likeliest token. What else differs is a switch of `Ptd`.
    """

    def __init__(self, config: Ptd, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        self._config = config
        self._switches = switches = config.switches
        self._closed = frozenset() if switches.eos == "expand" else context.eos_ids
        self._forest = DraftForest(
            config.width,
            config.depth,
            config.num_trees,
            is_staggered=switches.stagger,
            leaves=self._closed if switches.eos == "leaf" else (),
            cut_at=self._closed if switches.eos == "cut" else (),
        )
        self._pool = DraftPool(
            0 if switches.cap == "none" else config.key_nodes,
            config.pool_nodes if switches.cap == "strict" else 0,
            is_single_drop=switches.cap == "once",
        )
        self._lookup = PromptLookupDrafter(PromptLookup(), context)
        self._tokenizer = context.tokenizer if config.init == "ner" else None
        if config.init == "ner" and self._tokenizer is None:
            logger.warning("ptd cannot read the prompt without a tokenizer: init=random is used")

    @staticmethod
    def needs_for(config: Ptd) -> DrafterNeeds:
        """Ask for room for both trees, and the rankings that forest and pool learn from."""
        is_drawn = config.expansion != "greedy"
        return DrafterNeeds(
            max_nodes=config.switches.candidates,
            max_drafting=config.num_trees * config.tree_bound,
            rows="none" if config.switches.verified == "off" else "all",
            top_k=config.expansion_k if is_drawn else 1,
            probabilities=is_drawn,
        )

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request with an empty pool, or that of the prompt, and a new forest."""
        self._step = 0
        self._pool.clear()
        self._unmerged: list[Edge] = []
        self._generator = numpy_generator(seed, "ptd expansion")
        self._forest.plant(self._seeds(prompt, seed))
        self._tail: list[int] = []
        if self._switches.prefill:
            self._confirm(prompt)
        else:
            for token in prompt[-self._config.depth :]:
                self._extend_tail(token)
        self._lookup.reset(prompt, seed)

    def _seeds(self, prompt: Sequence[int], seed: int) -> list[list[int]]:
        seeds: list[list[int]] = []
        if self._tokenizer is not None:
            seeds = entity_seeds(prompt, self._tokenizer, self._config.num_trees)
        if len(seeds) < 2:
            generator = numpy_generator(seed, "ptd seeds")
            seeds += random_seeds(prompt, self._closed, generator)
        return seeds

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return what the pool has for the end of `sequence`, and the forest where it is due."""
        max_nodes = min(budget.max_nodes, self.needs.max_nodes)
        candidates = retrieve(
            self._pool,
            sequence[-self._switches.context :],
            max_nodes=max_nodes,
            max_depth=budget.max_depth,
            is_likely_first=self._switches.order == "likely",
        )
        if self._switches.fallback == "prompt-lookup" and not candidates.num_drafted:
            within = DraftBudget(max_nodes, budget.max_depth)
            candidates = self._lookup.propose(sequence, within).candidates
        # What the forest drafts can be proposed in the next step at the earliest.
        is_due = self._step % self._config.period == 0 and budget.max_depth > 1
        return Proposal(candidates, self._forest.tree(sequence[-1]) if is_due else None)

    def observe(self, outcome: StepOutcome) -> None:
        """Extend the forest, teach the pool, and take up the output."""
        if outcome.proposal is not None:
            self._step += 1
            if self._switches.verified != "off":
                self._learn_verified(outcome.proposal.candidates, outcome)
            if outcome.drafting_top_k:
                self._draft(outcome)
        if self._switches.confirm:
            self._confirm(outcome.committed)

    def _draft(self, outcome: StepOutcome) -> None:
        """Let every forest node gain a token, and merge what is new into the pool."""
        rankings = outcome.drafting_top_k[1:]
        if self._config.expansion == "greedy":
            tokens = first_choices(rankings)
        else:
            tokens = drawn_choices(
                rankings,
                outcome.drafting_probabilities[1:],
                self._generator,
                nucleus=self._config.expansion_p if self._config.expansion == "top-p" else 1.0,
            )
        is_open = self._switches.pool_start == "first" or self._forest.is_full_grown
        self._unmerged += self._forest.grow(tokens)
        if self._switches.merge == "before" and is_open:
            self._merge()
        self._forest.advance(outcome.committed[-1])
        if self._switches.merge == "after":
            self._unmerged = self._forest.kept(self._unmerged)
            if is_open:
                self._merge()

    def _merge(self) -> None:
        for node, token in self._unmerged:
            self._pool.add_suffixes([*node.path(), token])
        self._unmerged = []

    def _learn_verified(self, tree: TokenTree, outcome: StepOutcome) -> None:
        """Add the target's token after every candidate to the pool."""
        learn = self._pool.add if self._switches.verified == "key" else self._pool.add_suffixes
        paths = [[tree.tokens[0]]]
        for node in range(1, len(tree)):
            paths.append([*paths[tree.parents[node]], tree.tokens[node]])
        for node, ranking in zip(outcome.row_nodes, outcome.top_k, strict=True):
            is_closed = tree.tokens[node] in self._closed
            if node and not is_closed and ranking[0] not in tree.children(node):
                learn([*paths[node], ranking[0]])

    def _confirm(self, tokens: Sequence[int]) -> None:
        """Enter text that follows the tail into the pool."""
        for token in tokens:
            self._pool.confirm([*self._tail, token])
            self._extend_tail(token)

    def _extend_tail(self, token: int) -> None:
        """Add to the last tokens of the text; nothing follows one that ends an output."""
        self._tail = [] if token in self._closed else [*self._tail, token][-self._config.depth :]
