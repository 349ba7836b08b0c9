"""Lookahead decoding: a Jacobi window drafts n-grams inside the target's own forward."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.window_drafters import Lookahead
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.drafting_window import (
    DraftingWindow,
    PromptTokens,
    most_drafting_nodes,
)
from specdec_core.decoding.ngram_pool import NgramPool
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.randomness import numpy_generator
from specdec_core.tree.merging import merge_chains


@register(Lookahead)
class LookaheadDrafter:
    """Verifies the n-grams collected for the last token while the window drafts new ones.

    The window starts with random prompt tokens; its first N-2 forwards fill it and verify
    nothing. From then on every forward yields W n-grams, one per column: the column's first
    token, its guesses, and the target's token after them. The last token's n-grams share a tree
    where they begin alike.

    Source: Lookahead Decoding, section 3; as in its release the window follows the target's first
    choice at any temperature. Where the released code differs: a guess accepted to its end keeps
    the target's token after it; the window fills after the prefill instead of with it; tokens
    that end an output stay in n-grams, but give way to random prompt tokens in the window, which
    starts without them, at any temperature.
    """

    def __init__(self, config: Lookahead, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        self._config = config
        self._eos_ids = context.eos_ids
        self._pool = NgramPool(config.ngram - 1, config.guesses)

    @staticmethod
    def needs_for(config: Lookahead) -> DrafterNeeds:
        """Ask for room for all guesses and the widest window, and the choice after its nodes."""
        return DrafterNeeds(
            max_nodes=config.guesses * (config.ngram - 1),
            max_drafting=most_drafting_nodes(config.window, config.ngram - 2),
            top_k=1,
        )

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request with an empty pool and a window of random prompt tokens."""
        self._pool.clear()
        if self._config.pool_from_prompt:
            self._pool.begin_text(prompt)
        generator = numpy_generator(seed, "lookahead window")
        self._filler = PromptTokens(prompt, self._eos_ids, generator)
        starts = self._filler.pick(self._config.window + self._config.ngram - 3)
        self._window = DraftingWindow(
            [[token] for token in starts], self._config.ngram - 2, is_chained=True
        )

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the n-grams of the last token, once the window is full, and the window."""
        root = sequence[-1]
        guesses = self._pool.newest_first(root) if self._window.is_full else ()
        candidates = merge_chains(
            root, guesses, max_nodes=budget.max_nodes, max_depth=budget.max_depth
        )
        return Proposal(candidates, self._window.tree(root))

    def observe(self, outcome: StepOutcome) -> None:
        """Collect what the window drafted, and move it on by one token."""
        if outcome.proposal is not None and outcome.drafting_top_k:
            columns = self._window.columns(outcome.proposal.candidates.tokens[0])
            newest = [outcome.drafting_top_k[column.nodes[-1]][0] for column in columns]
            if self._window.is_full:
                for column, token in zip(columns, newest, strict=True):
                    self._pool.add(column.tokens[0], (*column.tokens[1:], token))
            self._window.advance(self._filler.replace_eos(newest))
        if self._config.pool_from_prompt:
            self._pool.extend_text(outcome.committed)
