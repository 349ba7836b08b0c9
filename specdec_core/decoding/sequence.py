"""One request while it is decoded: its tokens, stop rules, trace and drafter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch

from specdec_core.decoding.drafter import DraftBudget, Drafter, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.ranking import probabilities_of
from specdec_core.errors import ConfigError
from specdec_core.randomness import Noise
from specdec_core.records import FinishReason, PhaseSeconds, StepTrace
from specdec_core.tree.token_tree import TokenTree

StopCheck = Callable[[Sequence[int]], int | None]
CommitListener = Callable[[int, tuple[int, ...]], None]
"""Told of every request's new output tokens, by its index among the prompts."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One decoded request.

    Attributes:
        token_ids: Output ids, stop token included.
        finish_reason: Why it ended.
        trace: Counts of every step after the prefill.
        top_k: Per output position the ids ranked best there, best first; empty if not recorded.
        gaps: Per output position the target's best minus its second best logit, where tokens are
            sampled with the noise added that decides; empty if not recorded.
        phases: Seconds of the whole batch this request was part of, the same for all of it.
        is_sampled: Whether tokens were drawn, so that they need not be among those ranked best.
        step_seconds: Seconds of every step of the trace, those of the whole batch.
    """

    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    trace: StepTrace
    top_k: tuple[tuple[int, ...], ...] = ()
    gaps: tuple[float, ...] = ()
    phases: PhaseSeconds = field(default_factory=PhaseSeconds)
    is_sampled: bool = False
    step_seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StopRules:
    """When an output ends.

    Attributes:
        max_new_tokens: Most output tokens, at least 1.
        eos_ids: Tokens that end the output; they are part of it. May be empty.
        stop_check: Given the output so far, the number of tokens to keep if a stop string has been
            completed, else None; must depend on these tokens alone.
    """

    max_new_tokens: int
    eos_ids: frozenset[int] = frozenset()
    stop_check: StopCheck | None = None

    def cut(self, output: list[int], new: Sequence[int]) -> tuple[int, FinishReason | None]:
        """Return how many of `new` enter the output, and why it ends there (None: it goes on).

        The first stop of a token-by-token run wins; of several at one token the stop token, then
        the stop string.

        Raises:
            ConfigError: if `stop_check` wants a length that was already passed or is not reached.
        """
        num = min(len(new), self.max_new_tokens - len(output))
        reason: FinishReason | None = None
        if len(output) + num == self.max_new_tokens:
            reason = "length"
        for index, token in enumerate(new[:num]):
            if token in self.eos_ids:
                num, reason = index + 1, "stop_token"
                break
        if self.stop_check is None:
            return num, reason
        keep = self.stop_check([*output, *new[:num]])
        if keep is None:
            return num, reason
        if not len(output) < keep <= len(output) + num:
            raise ConfigError(
                f"stop_check asked to keep {keep} of {len(output) + num} output tokens after "
                f"{len(output)} were already final: it must return the shortest output that holds "
                "the stop string, judged on the tokens alone"
            )
        if keep == len(output) + num and reason == "stop_token":
            return num, reason
        return keep - len(output), "stop_string"


@dataclass(slots=True)
class TraceBuilder:
    """Collects the counts of a StepTrace."""

    drafted: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    drafting: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    committed: list[int] = field(default_factory=list)

    def add(self, proposal: Proposal, path: Sequence[int], num_committed: int) -> None:
        """Count one step that accepted `path` (root included, before cuts)."""
        self.drafted.append(proposal.candidates.num_drafted)
        self.depth.append(proposal.candidates.max_depth)
        self.drafting.append(proposal.num_drafting)
        self.accepted.append(min(len(path) - 1, num_committed))
        self.committed.append(num_committed)

    def build(self) -> StepTrace:
        """Return the trace of the steps so far."""
        return StepTrace(
            drafted=tuple(self.drafted),
            depth=tuple(self.depth),
            drafting=tuple(self.drafting) if any(self.drafting) else (),
            accepted=tuple(self.accepted),
            committed=tuple(self.committed),
        )


@dataclass(slots=True)
class SequenceState:
    """One request: `tokens` is prompt and output, the rest is recorded on the way."""

    drafter: Drafter
    tokens: list[int]
    num_prompt: int
    noise: Noise
    output: list[int] = field(default_factory=list)
    trace: TraceBuilder = field(default_factory=TraceBuilder)
    top_k: list[tuple[int, ...]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    on_commit: Callable[[tuple[int, ...]], None] | None = None

    @classmethod
    def start(
        cls, drafter: Drafter, prompt: Sequence[int], seed: int = 0, *, run_seed: int = 0
    ) -> SequenceState:
        """Return the state of a new request; its drafter is reset.

        Args:
            drafter: Serves this request alone until it ends.
            prompt: At least one token.
            seed: Of the request.
            run_seed: Of all requests' sampling.
        """
        drafter.reset(prompt, seed)
        return cls(drafter, list(prompt), len(prompt), Noise(run_seed, seed))

    def propose(self, rules: StopRules, vocab_size: int, max_positions: int) -> Proposal:
        """Return the drafter's checked proposal, for the tokens that may still be written.

        Drafting nodes that would lie behind the target's last position are left out.

        Raises:
            ConfigError: if the drafter broke its budget or proposed an impossible tree.
        """
        needs = self.drafter.needs
        max_depth = rules.max_new_tokens - len(self.output) - 1
        if max_depth == 0 or needs.max_nodes == 0:
            return Proposal.nothing(self.tokens[-1])
        budget = DraftBudget(needs.max_nodes, max_depth)
        proposal = self.drafter.propose(self.tokens, budget)
        tree = proposal.candidates
        author = f"drafter {type(self.drafter).__name__}"
        if tree.num_drafted > budget.max_nodes or tree.max_depth > budget.max_depth:
            raise ConfigError(
                f"{author} proposed {tree.num_drafted} nodes of depth {tree.max_depth} for "
                f"{budget}: a proposal must stay inside its budget"
            )
        if tree.tokens[0] != self.tokens[-1]:
            raise ConfigError(
                f"{author} proposed a tree with root {tree.tokens[0]}: the root must be the last "
                f"token of the sequence, {self.tokens[-1]}"
            )
        tree.validate(vocab_size, author=author)
        proposal.check_sampled(vocab_size, author=author)
        return self._check_drafting(proposal, vocab_size, max_positions, author)

    def _check_drafting(
        self, proposal: Proposal, vocab_size: int, max_positions: int, author: str
    ) -> Proposal:
        drafting = proposal.drafting
        if drafting is None:
            return proposal
        most = self.drafter.needs.max_drafting
        if drafting.num_drafted > most or drafting.tokens[0] != self.tokens[-1]:
            raise ConfigError(
                f"{author} sent {drafting.num_drafted} drafting nodes under the root "
                f"{drafting.tokens[0]}: at most {most}, under the last token {self.tokens[-1]}"
            )
        drafting.check_ids(vocab_size, author=author)
        if len(self.tokens) + drafting.max_depth > max_positions:
            return replace(proposal, drafting=None)
        return proposal

    def extend(self, new: Sequence[int], rules: StopRules) -> tuple[int, ...]:
        """Add `new` to the output up to its end and return the tokens that entered it."""
        num, self.finish_reason = rules.cut(self.output, new)
        committed = tuple(new[:num])
        self.output.extend(committed)
        self.tokens.extend(committed)
        if self.on_commit is not None:
            self.on_commit(committed)
        return committed

    def generation(self, phases: PhaseSeconds, *, is_sampled: bool = False) -> Generation:
        """Return the finished request.

        Args:
            phases: Seconds of the batch.
            is_sampled: Whether its tokens were drawn.
        """
        assert self.finish_reason is not None
        return Generation(
            token_ids=tuple(self.output),
            finish_reason=self.finish_reason,
            trace=self.trace.build(),
            top_k=tuple(self.top_k),
            gaps=tuple(self.gaps),
            phases=phases,
            is_sampled=is_sampled,
            step_seconds=tuple(self.step_seconds),
        )


def listen(states: Sequence[SequenceState], on_commit: CommitListener | None) -> None:
    """Let `on_commit` be told of what enters every output; None tells nobody."""
    if on_commit is not None:
        for index, state in enumerate(states):
            state.on_commit = partial(on_commit, index)


def offered_nodes(tree: TokenTree, path: Sequence[int]) -> tuple[int, ...]:
    """Return all nodes in order, except that those of `path` come last."""
    inside = set(path)
    return (*(node for node in range(len(tree)) if node not in inside), *path)


def step_outcome(
    proposal: Proposal,
    path: tuple[int, ...],
    committed: tuple[int, ...],
    nodes: Sequence[int],
    rows: Sequence[Sequence[int]],
    *,
    top_k: int,
    drafting: Sequence[Sequence[int]] = (),
    logits: torch.Tensor | None = None,  # [D, V]
    hidden: torch.Tensor | None = None,  # [len(path), T * h]
) -> StepOutcome:
    """Return what a drafter that asked for `top_k` ids per row is told; longer rows are cut.

    Args:
        proposal: What was forwarded.
        path: Committed candidate nodes.
        committed: Tokens that entered the output.
        nodes: Candidate nodes whose rankings are `rows`.
        rows: Their rankings, at least `top_k` ids each.
        top_k: Ids wanted per row; 0 offers nothing.
        drafting: Rankings after every node of the drafting tree.
        logits: After every node of the drafting tree, where probabilities are wanted.
        hidden: Hidden states of the committed nodes, where they are wanted.
    """
    if top_k == 0:
        return StepOutcome(proposal, path, committed, hidden=hidden)
    return StepOutcome(
        proposal,
        path,
        committed,
        tuple(proposal.candidates.tokens[node] for node in nodes),
        [row[:top_k] for row in rows],
        tuple(nodes),
        drafted := [row[:top_k] for row in drafting],
        () if logits is None or not drafted else probabilities_of(logits, drafted),
        hidden,
    )


def prefill_outcome(
    last_prompt_token: int,
    committed: tuple[int, ...],
    row: Sequence[int],
    *,
    top_k: int,
    hidden: torch.Tensor | None = None,  # [len(prompt), T * h]
) -> StepOutcome:
    """Return what a drafter is told of the prefill."""
    if top_k == 0:
        return StepOutcome(None, (), committed, hidden=hidden)
    return StepOutcome(None, (), committed, (last_prompt_token,), [row[:top_k]], hidden=hidden)
