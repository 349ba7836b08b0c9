"""The drafter's role: what it is told, what it may propose, and what it must declare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from specdec_core.decoding.proposal import Proposal

OfferedRows = Literal["none", "path", "all"]


@dataclass(frozen=True, slots=True)
class DraftBudget:
    """The most a drafter may propose in one step, root not counted.

    Attributes:
        max_nodes: Candidate nodes.
        max_depth: Candidate tokens on the longest path.
    """

    max_nodes: int
    max_depth: int


@dataclass(frozen=True, slots=True)
class DrafterNeeds:
    """What a drafter asks of the decode loop.

    Attributes:
        max_nodes: Most candidate nodes it ever proposes, root not counted; sizes the cache.
        max_drafting: Most drafting nodes that ride along in the target's forward; sizes the cache.
        rows: Whose next-token ranking it wants to see: nobody's, the accepted path's, or that of
            every candidate node.
        top_k: Ids per ranking, best first; 0 exactly where `rows` is ``none`` and nothing rides
            along.
        probabilities: Whether it also wants the probability of the ids ranked after drafting nodes.
        shares_cache: Whether it drafts on the target's own cache; it is a `CacheBorrower` then.
        taps: Hidden states of the target it wants of every committed token, numbered as
            `specdec_core.models.taps` says; nothing is kept or computed for none.
    """

    max_nodes: int = 0
    max_drafting: int = 0
    rows: OfferedRows = "none"
    top_k: int = 0
    probabilities: bool = False
    shares_cache: bool = False
    taps: tuple[int, ...] = ()

    @property
    def is_replayable(self) -> bool:
        """Whether proposals depend on committed tokens and the rankings after them alone."""
        sees_inside = self.rows == "all" or self.max_drafting > 0 or bool(self.taps)
        return not sees_inside and not self.shares_cache


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step did, as told to the drafter after it.

    Attributes:
        proposal: What was forwarded; None for the prefill.
        path: Candidate nodes whose next token was committed: the root and the accepted nodes, cut
            with the output, so that ``len(path) == len(committed)``; empty for the prefill.
        committed: Tokens that entered the output.
        row_tokens: Processed tokens whose ranking is offered, in node order, those of `path`
            last; a later one is the better witness where a token repeats.
        top_k: For each of `row_tokens` the ids most likely to follow it, best first, distinct.
        row_nodes: For each of `row_tokens` its candidate node; empty for the prefill.
        drafting_top_k: For every node of the proposal's drafting tree, its root included, the ids
            most likely to follow it; empty where nothing rode along.
        drafting_probabilities: Their probabilities at temperature 1, over the whole vocabulary;
            empty unless wanted.
        hidden: ``[len(path), T * hidden]`` in the target's dtype: hidden states of the nodes of
            `path`, all `taps` of a token side by side; for the prefill those of all prompt tokens,
            ``[len(prompt), T * hidden]``. All rows since `reset` are those of the sequence's
            tokens but the last. None unless wanted.
    """

    proposal: Proposal | None
    path: tuple[int, ...]
    committed: tuple[int, ...]
    row_tokens: tuple[int, ...] = ()
    top_k: Sequence[Sequence[int]] = ()
    row_nodes: tuple[int, ...] = ()
    drafting_top_k: Sequence[Sequence[int]] = ()
    drafting_probabilities: Sequence[Sequence[float]] = ()
    hidden: torch.Tensor | None = None


class CacheBorrower(Protocol):
    """The further role of drafters whose needs say that they share the target's cache."""

    def borrow(self, cache: Any) -> None:
        """Take the request's rows of the cache before a proposal, until the next `observe`.

        They are those of all tokens but the last. Up to `max_nodes` rows may be written behind
        them; the target writes over these.
        """
        ...


class Drafter(Protocol):
    """Proposes token trees; never verifies, stops or measures.

    Life of a request: `reset` with the prompt, `observe` once for the prefill (no proposal, one
    committed token), then per step `propose` and `observe`. One object serves one request at a
    time; what it remembers between requests is its state scope.
    """

    @property
    def needs(self) -> DrafterNeeds:
        """What it asks of the decode loop; constant."""
        ...

    def reset(self, prompt: Sequence[int], seed: int = 0) -> None:
        """Begin a request; `prompt` holds at least one token.

        All randomness of the request derives from `seed`, so that it does not depend on the
        requests before or beside it.
        """
        ...

    def propose(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return candidates whose root is the last token of `sequence` (prompt and output).

        Called twice without `observe` in between it returns the same. `sequence` belongs to the
        loop and must not be kept or changed. The root alone is a legal answer.
        """
        ...

    def observe(self, outcome: StepOutcome) -> None:
        """Learn what the step did."""
        ...
