"""Lookahead decoding as released, in Spec-Bench and by its authors."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.window import Window, most_nodes
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.randomness import numpy_generator
from specdec_core.tree.merging import merge_chains


class GuessLists:
    """For every token the continuations seen behind it, the newest last, a bounded number."""

    def __init__(self, most: int) -> None:
        self.lists: dict[int, list[tuple[int, ...]]] = {}
        self._most = most

    def enter(self, token: int, continuation: Sequence[int]) -> None:
        """Enter a continuation at the end; beyond the bound the first goes."""
        own = self.lists.setdefault(token, [])
        entry = tuple(continuation)
        if entry in own:
            own.remove(entry)
        elif len(own) == self._most:
            del own[0]
        own.append(entry)


class ReleasedLookahead:
    """Verifies the guesses of the last token; a window of random prompt tokens makes them.

    Its first forward holds the prompt too. The loop that counts matches stops at the last token
    of a guess whether it is right or not: that token is never kept as drafted, and the target's
    token behind it never used. Stop tokens are drafted like all others.

    Source: Lookahead Decoding, greedy search of its authors' code and of Spec-Bench.
    """

    def __init__(
        self,
        prompts: PromptPass,
        window: int,
        ngram: int,
        guesses: int,
        *,
        pool_from_prompt: bool = False,
    ) -> None:
        self._prompts, self._ngram, self._num_columns = prompts, ngram, window
        self._num_guesses, self._reads_text = guesses, pool_from_prompt
        self.needs = DrafterNeeds(
            max_nodes=guesses * (ngram - 1),
            max_drafting=most_nodes(window, ngram - 2, 1),
            top_k=1,
        )

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request: the window's first level comes from the prompt's forward."""
        generator = numpy_generator(seed, "released lookahead")
        drawn = generator.integers(0, len(prompt), self._num_columns + self._ngram - 3).tolist()
        self._pool = GuessLists(self._num_guesses)
        self._text: list[int] = []
        if self._reads_text:
            self._read(prompt)
        self._window = Window.begin(
            [[prompt[place]] for place in drawn], self._ngram - 2, is_chained=True
        )
        tree, _ = self._window.tree(prompt[-1])
        rows = self._prompts.rankings_behind(prompt, tree, 1)
        self._window.gain([rows[node][0] for node in self._window.last_nodes(prompt[-1])])

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the guesses of the last token, without their own last tokens, and the window."""
        root = sequence[-1]
        guesses = self._pool.lists.get(root, []) if self._window.is_full else []
        tree = merge_chains(
            root,
            [guess[:-1] for guess in guesses],
            max_nodes=self.needs.max_nodes,
            max_depth=budget.max_depth,
        )
        return Proposal(tree, self._window.tree(root)[0])

    def observe(self, outcome: StepOutcome) -> None:
        """Enter the n-grams of a full window, then let it gain its tokens."""
        if outcome.proposal is not None and outcome.drafting_top_k:
            root = outcome.proposal.candidates.tokens[0]
            ends = self._window.last_nodes(root)
            newest = [outcome.drafting_top_k[node][0] for node in ends]
            if self._window.is_full:
                for column, token in zip(self._window.columns, newest, strict=True):
                    key = column.prefix[0] if column.prefix else root
                    self._pool.enter(key, [*column.body, token])
            self._window.gain(newest)
        if self._reads_text:
            self._read(outcome.committed)

    def _read(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._text = [*self._text, token][-self._ngram :]
            if len(self._text) == self._ngram:
                self._pool.enter(self._text[0], self._text[1:])
