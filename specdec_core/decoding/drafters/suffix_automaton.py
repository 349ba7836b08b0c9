"""SAM-Decoding: continue the longest earlier match of the context, else fall back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from specdec_core.config.drafters import TokenRecycling
from specdec_core.config.retrieval import SuffixAutomaton
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.drafters.token_recycling import TokenRecyclingDrafter
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.retrieval.continuations import continuation_tree
from specdec_core.retrieval.datastore import open_datastore
from specdec_core.retrieval.indexed_text import Occurrences
from specdec_core.retrieval.suffix_automaton import Automaton, Match


@register(SuffixAutomaton)
class SuffixAutomatonDrafter:
    """Drafts what followed the longest suffix of the context, here or in a datastore.

    An automaton over prompt and output gives the longest suffix seen before, and the chain behind
    its first occurrence, up to the root itself. A datastore gives the longest suffix that occurs
    in it, and its most frequent continuations; it is preferred where it is longer by more than
    `len_bias`. Where the preferred match is shorter than `len_threshold`, the fallback drafts.

    Source: SAM-Decoding, sections 3.2 and 3.3, and its released code for the default sizes. Ours:
    the static side is a suffix array, which has the matches and counts of the paper's automaton;
    with a fallback it drafts the most frequent chain, not the first; nothing is padded.
    """

    def __init__(self, config: SuffixAutomaton, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        recycling = _recycling(config)
        self._num_tokens, self._len_bias = config.num_tokens, config.len_bias
        self._threshold = config.len_threshold or (5 if recycling else 1)
        self._alpha = config.alpha or (config.num_tokens if recycling else 4.0)
        self._width = config.static_width or (1 if recycling else 8)
        self._is_refined = config.is_refined
        self._automaton = Automaton()
        self._store = open_datastore(Path(config.datastore))[1] if config.datastore else None
        self._fallback = TokenRecyclingDrafter(recycling, context) if recycling else None

    @staticmethod
    def needs_for(config: SuffixAutomaton) -> DrafterNeeds:
        """Ask for room for the continuation, and for all that the fallback asks for."""
        recycling = _recycling(config)
        if recycling is None:
            return DrafterNeeds(max_nodes=config.num_tokens)
        needs = TokenRecyclingDrafter.needs_for(recycling)
        return replace(needs, max_nodes=max(needs.max_nodes, config.num_tokens))

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request: feed the prompt, but not its last token, which may be a root."""
        self._automaton.clear()
        self._automaton.feed(prompt[:-1])
        if self._fallback is not None:
            self._fallback.reset(prompt, seed)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the continuation of the preferred match, or what the fallback proposes."""
        self._automaton.feed(sequence[len(self._automaton) : -1])
        match = self._automaton.match(sequence[-1])
        found = self._find_longer(sequence, match.length)
        length = match.length if found is None else found.length - self._len_bias
        if length < self._threshold:
            if self._fallback is None:
                return Proposal.nothing(sequence[-1])
            return self._fallback.propose(sequence, budget)
        num_tokens = min(self._num_tokens, int(self._alpha * length))
        if found is None:
            return self._repeat(sequence, match, num_tokens, budget)
        return self._retrieve(sequence[-1], found, num_tokens, budget)

    def observe(self, outcome: StepOutcome) -> None:
        """Let the fallback learn; for matches the sequence itself is the memory."""
        if self._fallback is not None:
            self._fallback.observe(outcome)

    def _find_longer(self, sequence: Sequence[int], length: int) -> Occurrences | None:
        """Return the match in the datastore if it is preferred to one of `length` here."""
        if self._store is None:
            return None
        shortest = max(length + 1, self._threshold) + self._len_bias
        return self._store.find_suffix(sequence, shortest=shortest, longest=len(sequence))

    def _repeat(
        self, sequence: Sequence[int], match: Match, num_tokens: int, budget: DraftBudget
    ) -> Proposal:
        if self._is_refined:
            match = self._automaton.widen(match, num_tokens - 1)  # the root follows the text
        num_tokens = min(num_tokens, budget.max_nodes, budget.max_depth)
        return Proposal.chain(sequence[-1], sequence[match.end : match.end + num_tokens])

    def _retrieve(
        self, root: int, found: Occurrences, num_tokens: int, budget: DraftBudget
    ) -> Proposal:
        assert self._store is not None
        return Proposal(
            continuation_tree(
                self._store,
                found,
                root,
                max_nodes=min(num_tokens, budget.max_nodes),
                max_depth=min(num_tokens, budget.max_depth),
                max_per_depth=self._width,
            )
        )


def _recycling(config: SuffixAutomaton) -> TokenRecycling | None:
    """Return the options of the fallback, None without one."""
    if config.fallback == "none":
        return None
    return TokenRecycling(
        num_nodes=config.fallback_nodes,
        max_depth=config.fallback_depth,
        update=config.update,
        prompt_bigrams=config.prompt_bigrams,
        state_scope=config.state_scope,
    )
