"""How chains and trees are written with a draft model: one draft forward per level."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Generic, Protocol, TypeVar

import torch

from specdec_core.config.learned_drafters import LearnedOptions
from specdec_core.config.sampling import Sampling
from specdec_core.config.tree_options import DraftChoice
from specdec_core.decoding.context import DrafterContext
from specdec_core.decoding.draft_choice import ChildChooser, Children
from specdec_core.decoding.draft_session import DraftSession, DraftView
from specdec_core.decoding.drafter import DraftBudget
from specdec_core.decoding.proposal import Proposal, SampledChildren
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.tree.token_tree import TokenTree


@dataclass(frozen=True, slots=True)
class Growth:
    """The shape of what is drafted.

    Attributes:
        levels: Children of a node per depth; ones alone make a chain.
        num_nodes: Most draft nodes offered, the likeliest.
        width: Most nodes run per level, the likeliest; None for all.
        min_confidence: A token less likely than this to the draft gets no children.
    """

    levels: tuple[int, ...]
    num_nodes: int
    width: int | None = None
    min_confidence: float = 0.0

    @classmethod
    def chain(cls, gamma: int, min_confidence: float = 0.0) -> Growth:
        """Return the shape of a chain of `gamma` tokens."""
        return cls((1,) * gamma, gamma, min_confidence=min_confidence)

    @classmethod
    def learned(cls, config: LearnedOptions) -> Growth:
        """Return the shape that the options of a learned drafter ask for."""
        return cls(config.levels, config.most_nodes, config.width, config.min_confidence)

    @property
    def is_scored(self) -> bool:
        """Whether it matters how likely nodes are."""
        return max(self.levels) > 1 or self.min_confidence > 0.0


class TreeSession(Protocol):
    """What runs the nodes of a growing tree: `DraftSession` and its likes on hidden states.

    Nodes are numbered as they are run, the last token of the sequence is 0.
    """

    def max_depth(self, sequence: Sequence[int]) -> int:
        """Return how many tokens can be drafted behind `sequence` in one path, 0 for none."""
        ...

    def begin(self, sequence: Sequence[int]) -> torch.Tensor:
        """Return the logits after `sequence`, [V']; asked again it returns the same."""
        ...

    def extend(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Run further nodes below `parents`, run before; return the logits after them, [n, V']."""
        ...


SessionT = TypeVar("SessionT", bound=TreeSession)


class _HasChoice(Protocol):
    """Options that say how tokens are chosen."""

    @property
    def method(self) -> str: ...

    @property
    def draft(self) -> DraftChoice: ...


@dataclass(slots=True)
class _Grown:
    """A tree while it grows; node 0 is the root."""

    tokens: list[int]
    parents: list[int] = field(default_factory=lambda: [-1])
    log_probs: list[float] = field(default_factory=lambda: [0.0])
    scores: list[float] = field(default_factory=lambda: [0.0])
    sampled: dict[int, SampledChildren] = field(default_factory=dict)

    def add(self, node: int, children: Children) -> None:
        """Add the children of `node`."""
        first = len(self.tokens)
        for token, log_prob in zip(children.tokens, children.log_probs, strict=True):
            self.tokens.append(token)
            self.parents.append(node)
            self.log_probs.append(log_prob)
            self.scores.append(self.scores[node] + log_prob)
        if children.distribution is not None:
            order = tuple(range(first, len(self.tokens)))
            self.sampled[node] = SampledChildren(order, children.distribution)

    def path(self, node: int) -> list[int]:
        """Return the tokens from behind the root to `node`."""
        tokens: list[int] = []
        while node:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tokens[::-1]

    def best(self, nodes: Sequence[int], num: int) -> list[int]:
        """Return the `num` best of `nodes` in creation order."""
        if len(nodes) <= num:
            return list(nodes)
        return sorted(nsmallest(num, nodes, key=lambda node: (-self.scores[node], node)))

    def proposal(self, num_nodes: int) -> Proposal:
        """Return the best draft nodes as a proposal."""
        kept = [0, *self.best(range(1, len(self.tokens)), num_nodes)]
        place = {-1: -1} | {node: index for index, node in enumerate(kept)}
        tree = TokenTree(
            tuple(self.tokens[node] for node in kept),
            tuple(place[self.parents[node]] for node in kept),
        )
        return Proposal(tree, sampled=self.sampled)


class DraftWriter(Generic[SessionT]):
    """Writes proposals with a draft view: a session, a choice of children and a shape.

    A node's score is the log-probability of its path. The best nodes are a prefix of the order
    by falling score, then by creation: scores never rise along a path and parents come first, so
    that the prefix is a tree even where scores are equal. What cannot be among the best any more
    is not run. Drawn children are never dropped; the node limit then says, before they are drawn,
    how many the likeliest nodes of a level get.

    Source: EAL (arXiv 2609.24150), evaluation section, for the tree pruned by cumulative score;
    EAGLE-2, sections 4.1 and 4.2, for expanding and reranking.
    """

    def __init__(
        self,
        session: SessionT,
        growth: Growth,
        choice: DraftChoice,
        *,
        sampling: Sampling,
        vocab_size: int,
        eos_ids: Collection[int],
        vocabulary: DraftVocabulary | None = None,
    ) -> None:
        self.session = session
        self._growth = growth
        self._chooser = ChildChooser(choice, sampling, vocab_size, vocabulary)
        self._eos_ids = eos_ids

    @classmethod
    def of(
        cls,
        view: DraftView,
        growth: Growth,
        config: _HasChoice,
        context: DrafterContext,
        vocabulary: DraftVocabulary | None = None,
    ) -> DraftWriter[DraftSession]:
        """Return a writer with a session of its own over `view`.

        Raises:
            ConfigError: if the context has no view to draft for, or its target lacks ids of a
                narrowed `vocabulary`.
        """
        return DraftWriter.over(DraftSession(view), growth, config, context, vocabulary)

    @classmethod
    def over(
        cls,
        session: SessionT,
        growth: Growth,
        config: _HasChoice,
        context: DrafterContext,
        vocabulary: DraftVocabulary | None = None,
    ) -> DraftWriter[SessionT]:
        """Return a writer with this session.

        Raises:
            ConfigError: as `of`.
        """
        return cls(
            session,
            growth,
            config.draft,
            sampling=context.sampling,
            vocab_size=context.require_view(config.method).vocab_size,
            eos_ids=context.eos_ids,
            vocabulary=vocabulary,
        )

    def reset(self, prompt: Sequence[int], seed: int) -> None:
        """Begin a request; the session is reset or lent a cache by the drafter."""
        self._chooser.reset(prompt, seed)

    @torch.inference_mode()
    def write(self, sequence: Sequence[int], budget: DraftBudget) -> Proposal:
        """Return a proposal inside the budget and the draft's own context."""
        growth = self._growth
        num_nodes = min(growth.num_nodes, budget.max_nodes)
        depth = min(budget.max_depth, num_nodes, self.session.max_depth(sequence))
        levels = growth.levels[:depth]
        if not levels:
            return Proposal.nothing(sequence[-1])
        grown = _Grown([sequence[-1]])
        run = {0: 0}  # node -> number in the session
        logits = self.session.begin(sequence)[None]
        plan = self._plan(grown, [0], levels[0], num_nodes)
        for following in (*levels[1:], 0):
            first = len(grown.tokens)
            paths = [grown.path(node) for node in plan]
            chosen = self._chooser.choose(
                logits, sequence, paths, list(plan.values()), with_scores=growth.is_scored
            )
            for node, children in zip(plan, chosen, strict=True):
                grown.add(node, children)
            level_nodes = range(first, len(grown.tokens))
            plan = self._plan(grown, level_nodes, following, num_nodes)
            if not plan:
                break
            run.update({node: len(run) + index for index, node in enumerate(plan)})
            tokens = [grown.tokens[node] for node in plan]
            logits = self.session.extend(tokens, [run[grown.parents[node]] for node in plan])
        return grown.proposal(num_nodes)

    def _plan(
        self, grown: _Grown, nodes: Sequence[int], num: int, num_nodes: int
    ) -> dict[int, int]:
        """Return which of a level's nodes get children, in creation order, and how many at most."""
        nodes = [node for node in nodes if num and self._is_open(grown, node)]
        if not self._chooser.is_drawing:
            useful = {0, *grown.best(range(1, len(grown.tokens)), num_nodes)}
            nodes = [node for node in nodes if node in useful]
            if self._growth.width is not None:
                nodes = grown.best(nodes, self._growth.width)
            return dict.fromkeys(nodes, min(num, num_nodes))
        left = num_nodes - len(grown.tokens) + 1
        nums = {}
        for node in sorted(nodes, key=lambda node: (-grown.scores[node], node)):
            nums[node] = min(num, left)
            left -= nums[node]
        return {node: nums[node] for node in nodes if nums[node]}

    def _is_open(self, grown: _Grown, node: int) -> bool:
        """Whether a node may have children: what ends the output or is a mere guess has none."""
        if node == 0:
            return True
        least = self._growth.min_confidence
        is_likely = least == 0.0 or grown.log_probs[node] >= math.log(least)
        return is_likely and grown.tokens[node] not in self._eos_ids
