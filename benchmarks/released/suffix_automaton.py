"""SAM-Decoding with its Token Recycling fallback as released, without a static automaton."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.released.prompt_pass import PromptPass
from benchmarks.released.templates import TOP_K, fill, sixty_nodes
from benchmarks.released.token_recycling import in_node_order
from specdec_core.decoding.drafter import DraftBudget, DrafterNeeds, StepOutcome
from specdec_core.decoding.proposal import Proposal

_PADDING = 0


class ReleasedSamDecoding:
    """Continues a match of five tokens or more, else fills a tree of 60 nodes.

    A match with less than `num_tokens` behind its first occurrence gives way to shorter suffixes
    that occur at more places, until one has them or none is left. What is missing is padded
    with the token 0; one stands for all, since nothing follows a wrong one and a right one, the
    end of text, ends the output. The fallback learns from every forward, the prompt's included,
    and is never emptied.

    Source: SAM-Decoding, as in Spec-Bench; the matches are found by comparing, not by automaton.
    """

    def __init__(self, prompts: PromptPass, num_tokens: int = 40, threshold: int = 5) -> None:
        self.needs = DrafterNeeds(max_nodes=60, rows="all", top_k=TOP_K)
        self._prompts, self._num_tokens, self._threshold = prompts, num_tokens, threshold
        self._shape = sixty_nodes()
        self._rows: dict[int, Sequence[int]] = {}

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:  # noqa: ARG002 - not random
        """Begin a request: learn the ranking after every token of the prompt."""
        self._rows.update(zip(prompt, self._prompts.rankings(prompt, TOP_K), strict=True))

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return the continuation of the match, or the filled tree."""
        root = sequence[-1]
        draft = self.continuation(sequence)
        if draft is None:
            return Proposal(fill(self._shape, root, self._rows, budget))
        return Proposal.chain(root, draft[: budget.max_depth])

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the rows of all nodes in their order."""
        self._rows.update(in_node_order(outcome))

    def continuation(self, sequence: Sequence[int]) -> list[int] | None:
        """Return what follows the match of the end of `sequence`, None if it is too short."""
        ends = match_lengths(sequence)
        longest = max(ends.values(), default=0)
        if longest < self._threshold:
            return None
        text = list(sequence[:-1])
        draft: list[int] = []
        for length in sorted(set(ends.values()), reverse=True):
            first = min(end for end, matched in ends.items() if matched >= length)
            draft = text[first : first + self._num_tokens - 1]
            if len(text) - first >= self._num_tokens:
                break
        if len(draft) < self._num_tokens - 1:
            draft.append(_PADDING)
        return draft


def match_lengths(sequence: Sequence[int]) -> dict[int, int]:
    """Return for every place in the text that ends like `sequence` how many tokens agree.

    The text is `sequence` without its last token. A key is the number of tokens of the text up
    to and with the one that equals the last of `sequence`.
    """
    found = {}
    for end in range(1, len(sequence)):
        length = 0
        while length < end and sequence[end - 1 - length] == sequence[-1 - length]:
            length += 1
        if length:
            found[end] = length
    return found
