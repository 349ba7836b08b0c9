"""Self-Draft as released."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.released.lookahead import GuessLists
from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.window import Window, most_nodes
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.randomness import numpy_generator
from specdec_core.retrieval.frequent_ngrams import FrequentNgrams
from specdec_core.tree.merging import merge_chains

_NUM_BRANCHES, _BRANCH_LENGTH, _SNIPPET = 6, 6, 2
_NGRAM = 4
_CONTEXT_DRAFTS, _CORPUS_DRAFTS, _FULL_CORPUS_DRAFTS = 10, 3, 2
_LONGEST_KEY = 4
_KEPT = 2


class ReleasedSelfDraft:
    """Verifies 4-grams of the context and of a corpus, without the last token of each.

    Branches hang behind snippets of one or two random prompt tokens. The context's lists live
    on from request to request; the second, fourth, .. begins with the two newest entries per token.
    The last token is lost as in Lookahead Decoding, whose matching code it shares.

    Source: Self-Draft, greedy search with its default arguments; the corpus is any table of
    frequent 4-grams.
    """

    def __init__(self, prompts: PromptPass, corpus: FrequentNgrams | None = None) -> None:
        self._prompts, self._corpus = prompts, corpus
        self._pool = GuessLists(_CONTEXT_DRAFTS)
        self._num_requests = 0
        self.needs = DrafterNeeds(
            max_nodes=(_CONTEXT_DRAFTS + _CORPUS_DRAFTS) * _NGRAM,
            max_drafting=most_nodes(_NUM_BRANCHES, _BRANCH_LENGTH - 2, _SNIPPET),
            top_k=1,
        )

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request: new branches, whose first tokens come from the prompt's forward."""
        if self._num_requests % 2 == 1:
            for own in self._pool.lists.values():
                del own[:-_KEPT]
        self._num_requests += 1
        self._text, self._num_entered = list(prompt), 0
        generator = numpy_generator(seed, "released self-draft")
        num_short = _BRANCH_LENGTH - 2
        lengths = [1] * num_short
        lengths += generator.integers(1, _SNIPPET + 1, _NUM_BRANCHES - 1).tolist()
        snippets = [
            [prompt[place] for place in generator.integers(0, len(prompt), length).tolist()]
            for length in lengths
        ]
        self._window = Window.begin(snippets, _BRANCH_LENGTH - 2, is_chained=False)
        tree, _ = self._window.tree(prompt[-1])
        rows = self._prompts.rankings_behind(prompt, tree, 1)
        self._window.gain([rows[node][0] for node in self._window.last_nodes(prompt[-1])])

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the 4-grams for the last token once the branches are full, and the branches."""
        root = sequence[-1]
        drafts = self._drafts(sequence) if self._window.is_full else []
        tree = merge_chains(
            root,
            [draft[:-1] for draft in drafts],
            max_nodes=self.needs.max_nodes,
            max_depth=budget.max_depth,
        )
        return Proposal(tree, self._window.tree(root)[0])

    def observe(self, outcome: StepOutcome) -> None:
        """Enter what the branches and the text hold, then let the branches gain a token."""
        if outcome.proposal is not None and outcome.drafting_top_k:
            best = [ranking[0] for ranking in outcome.drafting_top_k]
            root = self._text[-1]
            if self._window.is_full:
                self._enter(best, outcome.committed[0])
            self._window.gain([best[node] for node in self._window.last_nodes(root)])
        self._text += outcome.committed

    def _drafts(self, sequence: Sequence[int]) -> list[tuple[int, ...]]:
        context = list(self._pool.lists.get(sequence[-1], []))
        if self._corpus is None:
            return context
        room = _CONTEXT_DRAFTS - len(context)
        wanted = min(_CORPUS_DRAFTS, room) if room else _FULL_CORPUS_DRAFTS
        return context + corpus_drafts(self._corpus, sequence, wanted, context)

    def _enter(self, best: Sequence[int], next_token: int) -> None:
        """Enter the n-grams of all branches but the first, then those that begin in the text."""
        _, nodes = self._window.tree(self._text[-1])
        others = list(zip(self._window.columns, nodes, strict=True))[1:]
        deepest = max(len(column.prefix) for column, _ in others)
        for level in range(deepest + 1):
            for column, own in others:
                start = level - deepest + len(column.prefix)
                if start >= 0:
                    path = [*column.prefix, *column.body]
                    last = best[own[start + _NGRAM - 1]]
                    self._pool.enter(path[start], [*path[start + 1 : start + _NGRAM], last])
        self._enter_text(best, nodes, next_token)

    def _enter_text(
        self, best: Sequence[int], nodes: Sequence[Sequence[int]], next_token: int
    ) -> None:
        """Enter the text's n-grams, those at its end completed by the first branch.

        What lacks one token is first completed by the token behind the first snippet, a slip of
        the release, and at the very end by the right one.
        """
        text, body = self._text, self._window.columns[0].body
        # Behind the first snippet's last token, then behind the first branch's tokens.
        snippet = nodes[1][len(self._window.columns[1].prefix) - 1]
        behind = [best[snippet], *(best[node] for node in nodes[0])]
        for start in range(max(0, self._num_entered - _NGRAM - 1), len(text)):
            own = text[start + 1 : start + 1 + _NGRAM]
            missing = _NGRAM - len(own)
            tail = [*body[: missing - 1], behind[missing - 1]] if missing else []
            self._pool.enter(text[start], [*own, *tail])
        self._num_entered = len(text)
        self._pool.enter(body[0], [*body[1:_NGRAM], behind[_NGRAM]])
        self._pool.enter(text[-1], [*body[: _NGRAM - 1], behind[_NGRAM - 1]])
        if len(text) >= _NGRAM:
            self._pool.enter(text[-_NGRAM], [*text[len(text) - _NGRAM + 1 :], next_token])


def corpus_drafts(
    corpus: FrequentNgrams,
    sequence: Sequence[int],
    wanted: int,
    context: Sequence[tuple[int, ...]],
) -> list[tuple[int, ...]]:
    """Return up to `wanted` drafts of the corpus, those of the longest key first.

    Of every key only as many entries are looked at as are still wanted; those that the context
    offers are left out, and not replaced.
    """
    found: list[tuple[int, ...]] = []
    for length in range(min(_LONGEST_KEY, len(sequence)), 0, -1):
        entries = list(corpus.after(sequence[-length:]))
        shorter = list(corpus.after(sequence[-length + 1 :])) if length > 1 else []
        own = entries[: len(entries) - len(shorter)][: wanted - len(found)]
        found += [entry for entry in own if entry not in found and entry not in context]
        if len(found) >= wanted:
            break
    return found
