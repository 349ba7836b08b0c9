"""Self-Draft: draft branches behind random snippets, and n-grams of context and corpus."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from specdec_core.config.window_drafters import SelfDraft
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.drafting_window import (
    Column,
    DraftingWindow,
    PromptTokens,
    most_drafting_nodes,
)
from specdec_core.decoding.ngram_pool import NgramPool
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.registry import register
from specdec_core.randomness import numpy_generator
from specdec_core.retrieval.datastore import open_datastore
from specdec_core.retrieval.frequent_ngrams import FrequentNgrams
from specdec_core.tree.merging import merge_chains

_CONTEXT_DRAFTS = 10
_KEPT_BETWEEN_REQUESTS = 2
_CORPUS_DRAFTS = 3
_CORPUS_NGRAM = 4
_LONGEST_CORPUS_KEY = 4


@register(SelfDraft)
class SelfDraftDrafter:
    """Verifies n-grams of the context pool and of a corpus while its branches draft new ones.

    Branches are columns of a lookahead window whose prefixes are snippets of one or more random
    prompt tokens, each directly after the root, so that they explore different continuations. All
    n-grams along a branch, its snippet included, enter the context pool with the target's token
    after them; so do those of prompt and output, also where they run on into the first branch.
    Snippets move down their branches with every step and keep their lengths.

    With a datastore as corpus, up to three of its frequent 4-grams are verified too: those that
    follow the longest part of the last four tokens, the most frequent first, if the context pool
    does not offer them.

    Source: Self-Draft (AAAI 2025), its draft branches, context pool and corpus pool, with the
    released defaults. Where the released code differs: a draft accepted to its end keeps the
    target's token after it; the pool begins empty for every request unless the state scope is
    ``run``, where, as in the release, every second request begins with the two newest n-grams per
    token; the context's own n-gram before the first branch ends with the target's token instead
    of one drafted elsewhere; a full context pool leaves the corpus its three drafts; tokens that
    end an output stay in n-grams, but give way to random prompt tokens in the branches, which
    start without them. The branches fill after the prefill instead of with it.
    """

    def __init__(self, config: SelfDraft, context: DrafterContext) -> None:
        self.needs = self.needs_for(config)
        self._config = config
        self._eos_ids = context.eos_ids
        self._pool = NgramPool(config.context_ngram, _CONTEXT_DRAFTS)
        self._num_requests = 0
        self._corpus: FrequentNgrams | None = None
        if config.datastore:
            self._corpus = FrequentNgrams(
                open_datastore(Path(config.datastore))[1],
                num_tokens=_CORPUS_NGRAM,
                longest_key=_LONGEST_CORPUS_KEY,
                min_count=config.min_count,
            )

    @staticmethod
    def needs_for(config: SelfDraft) -> DrafterNeeds:
        """Ask for room for all drafts and the widest window, and the choice after its nodes."""
        corpus_nodes = _CORPUS_DRAFTS * _CORPUS_NGRAM if config.datastore else 0
        return DrafterNeeds(
            max_nodes=_CONTEXT_DRAFTS * config.context_ngram + corpus_nodes,
            max_drafting=most_drafting_nodes(
                config.branch_num, config.branch_len - 2, config.prefix_len
            ),
            top_k=1,
        )

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request with new branches, and what the state scope leaves of the pool."""
        if self._config.state_scope == "prompt":
            self._pool.clear()
        elif self._num_requests % 2:
            self._pool.keep_newest(_KEPT_BETWEEN_REQUESTS)
        self._num_requests += 1
        self._pool.begin_text(prompt)
        generator = numpy_generator(seed, "self-draft branches")
        self._filler = PromptTokens(prompt, self._eos_ids, generator)
        # Snippets dropped while the branches grow stay short.
        num_levels, num_kept = self._config.branch_len - 2, self._config.branch_num - 1
        lengths = generator.integers(1, self._config.prefix_len + 1, num_kept).tolist()
        snippets = [self._filler.pick(length) for length in [*[1] * num_levels, *lengths]]
        self._window = DraftingWindow(snippets, num_levels, is_chained=False)

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the n-grams for the last token, once the branches are full, and the branches."""
        root = sequence[-1]
        drafts = self._drafts(sequence) if self._window.is_full else ()
        candidates = merge_chains(
            root, drafts, max_nodes=budget.max_nodes, max_depth=budget.max_depth
        )
        return Proposal(candidates, self._window.tree(root))

    def observe(self, outcome: StepOutcome) -> None:
        """Collect what the branches drafted, and move them on by one token."""
        if outcome.proposal is not None and outcome.drafting_top_k:
            best = [ranking[0] for ranking in outcome.drafting_top_k]
            columns = self._window.columns(outcome.proposal.candidates.tokens[0])
            if self._window.is_full:
                self._collect(columns, best)
            newest = [best[column.nodes[-1]] for column in columns]
            self._window.advance(self._filler.replace_eos(newest))
        self._pool.extend_text(outcome.committed)

    def _drafts(self, sequence: Sequence[int]) -> Iterable[tuple[int, ...]]:
        """Return the n-grams to verify, without repetition: the context's, then the corpus'."""
        drafts = dict.fromkeys(self._pool.newest_first(sequence[-1]))
        if self._corpus is not None:
            most = len(drafts) + _CORPUS_DRAFTS
            for draft in self._corpus.after(sequence[-_LONGEST_CORPUS_KEY:]):
                if len(drafts) == most:
                    break
                drafts.setdefault(draft)
        return drafts

    def _collect(self, columns: Sequence[Column], best: Sequence[int]) -> None:
        """Enter the n-grams of every branch; the first one continues the context.

        Args:
            columns: The branches as forwarded.
            best: Token the target ranks first after every drafting node.
        """
        before = self._pool.recent
        first = columns[0]
        self._pool.add_path(
            (*before[:-1], *first.tokens), (*before[1:], *(best[node] for node in first.nodes))
        )
        for column in columns[1:]:
            self._pool.add_path(column.tokens, [best[node] for node in column.nodes])
