"""The one decode loop: propose, forward, verify, commit, observe, for any batch of requests.

Autoregressive decoding is this loop with a drafter that never proposes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, cast

import torch

from specdec_core.config.sampling import Sampling
from specdec_core.decoding.drafter import CacheBorrower, Drafter, StepOutcome
from specdec_core.decoding.proposal import Proposal
from specdec_core.decoding.ranking import TopRows, select_rows, top_rows
from specdec_core.decoding.request import check_lengths, check_request, check_seeds
from specdec_core.decoding.sequence import (
    CommitListener,
    Generation,
    SequenceState,
    StopCheck,
    StopRules,
    listen,
    offered_nodes,
    prefill_outcome,
    step_outcome,
)
from specdec_core.decoding.taps import TapReader
from specdec_core.decoding.target import CacheT, PrefixT, TargetView
from specdec_core.decoding.timing import PhaseTimer
from specdec_core.decoding.verification.batch import BatchVerifier
from specdec_core.decoding.verification.rule import Verdict
from specdec_core.errors import SearchCancelledError

_GREEDY = Sampling()


def generate(
    view: TargetView[CacheT, PrefixT],
    prompts: Sequence[Sequence[int]],
    drafters: Sequence[Drafter],
    *,
    max_new_tokens: int,
    eos_ids: Collection[int],
    stop_check: StopCheck | None = None,
    prefix: PrefixT | None = None,
    clock: Callable[[], float] = time.perf_counter,
    synchronize: Callable[[], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    num_top_k: int = 0,
    record_gaps: bool = False,
    sampling: Sampling = _GREEDY,
    seeds: Sequence[int] | None = None,
    on_commit: CommitListener | None = None,
) -> list[Generation]:
    """Decode every prompt and return what came out, in the order of `prompts`.

    The output is that of the target alone, whatever the drafters propose: the same tokens, or,
    under sampling rules that test drafts in other ways, the same law of tokens; except under
    rules that are not lossless. Every step runs one forward for all unfinished requests; each
    accepts its own number of tokens.

    Args:
        view: The target.
        prompts: Token ids, at least one per request; with `prefix` the whole prompt all the same.
        drafters: One object per request, none of them twice.
        max_new_tokens: Most output tokens per request, at least 1; never exceeded.
        eos_ids: Tokens that end an output and are part of it; empty means run to the limit.
        stop_check: Given an output so far, how many of its tokens to keep if it completed a stop
            string, else None.
        prefix: Rows of a prompt beginning shared by all prompts, made by the same view.
        clock: Monotonic clock, seconds.
        synchronize: Waits for the device; None where calls return finished.
        should_stop: Asked before the prefill and before every step.
        num_top_k: Ids to record per output position, for `replay`; 0 records none.
        record_gaps: Whether to record the target's top-2 logit gap per output position.
        sampling: How logits become tokens, and the verification rule; greedy by default.
        seeds: One per request; None for zeros, where nothing is drawn or there is one request.
        on_commit: Told of new output tokens at once; its time counts as verification.

    Raises:
        ConfigError: for arguments that cannot work, or a drafter that broke its contract.
        CacheDesyncError: if the cache does not hold what was committed.
        MeasurementError: if logits are not numbers.
        SearchCancelledError: if `should_stop` said so.
    """
    rules = StopRules(max_new_tokens, frozenset(eos_ids), stop_check)
    check_request(view, prompts, drafters, rules)
    check_seeds(sampling, seeds, len(prompts))
    verifier = BatchVerifier(sampling, with_margins=record_gaps)
    reader = TapReader(view, drafters)
    timer = PhaseTimer(clock, synchronize)
    requests = zip(drafters, prompts, seeds or [0] * len(prompts), strict=True)
    states = [SequenceState.start(*each, run_seed=sampling.seed) for each in requests]
    listen(states, on_commit)
    spare_rows = max(drafter.needs.max_nodes + drafter.needs.max_drafting for drafter in drafters)
    capacity = max(map(len, prompts)) + max_new_tokens + spare_rows
    with torch.inference_mode():
        _raise_if_stopped(should_stop)
        cache = view.new_cache(len(prompts), capacity)
        batch = _Batch(view, reader, cache, states, rules, timer, verifier, num_top_k=num_top_k)
        batch.prefill(prompts, prefix)
        while batch.active:
            _raise_if_stopped(should_stop)
            batch.step()
    return [state.generation(timer.seconds, is_sampled=not sampling.is_greedy) for state in states]


@dataclass(frozen=True, slots=True)
class _Step:
    """One sequence's part of a verify step.

    `offered` are the candidate nodes whose rankings are wanted, those of `path` last unless it is
    empty; `drafting` the nodes of the forward tree that rode along, its root first; `margins` by
    how much the committed tokens won, if the rule told.
    """

    state: SequenceState
    proposal: Proposal
    path: tuple[int, ...]
    committed: tuple[int, ...]
    offered: tuple[int, ...]
    drafting: tuple[int, ...]
    margins: tuple[float, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """Nodes of the forward tree to rank."""
        return self.offered + self.drafting


class _Batch(Generic[CacheT, PrefixT]):
    """The requests still being decoded; `active[i]` is sequence i of the cache."""

    def __init__(
        self,
        view: TargetView[CacheT, PrefixT],
        reader: TapReader[CacheT, PrefixT],
        cache: CacheT,
        states: Sequence[SequenceState],
        rules: StopRules,
        timer: PhaseTimer,
        verifier: BatchVerifier,
        *,
        num_top_k: int,
    ) -> None:
        self.active = list(states)
        self._view = view
        self._reader = reader
        self._cache = cache
        self._rules = rules
        self._timer = timer
        self._verifier = verifier
        self._num_top_k = num_top_k
        self._record_gaps = verifier.has_margins
        # Elsewhere the rule itself tells the gaps.
        self._is_ranked_for_gaps = self._record_gaps and verifier.is_plain
        needed = max(state.drafter.needs.top_k for state in states)
        self._num_ranked = max(num_top_k, needed, int(self._is_ranked_for_gaps))

    def prefill(self, prompts: Sequence[Sequence[int]], prefix: PrefixT | None) -> None:
        """Run the prompts and commit every request's first token."""
        logits = self._reader.prefill(prompts, self._cache, prefix)  # [B, V]
        verdicts = self._verifier.first_tokens(self.active, logits)
        ranked = top_rows(logits, self._num_ranked) if self._num_ranked else None
        outcomes = []
        for index, (state, verdict) in enumerate(zip(self.active, verdicts, strict=True)):
            last = state.tokens[-1]
            committed = state.extend([verdict.bonus], self._rules)
            rows = ranked.ids[index : index + 1] if ranked else []
            gaps = ranked.gaps[index : index + 1] if ranked else []
            self._record(state, rows, verdict.margins or gaps)
            needs, row = state.drafter.needs, rows[0] if rows else ()
            hidden = self._reader.read(index, needs.taps)
            told = prefill_outcome(last, committed, row, top_k=needs.top_k, hidden=hidden)
            outcomes.append(told)
        self._timer.lap("prefill")
        self._timer.split()
        self._finish_step(outcomes)

    def step(self) -> None:
        """Run one verify step for every unfinished request."""
        vocab_size, max_positions = self._view.vocab_size, self._view.max_positions
        for row, state in enumerate(self.active):
            if state.drafter.needs.shares_cache:
                cast(CacheBorrower, state.drafter).borrow(self._cache.narrow(row, row + 1))
        proposals = [state.propose(self._rules, vocab_size, max_positions) for state in self.active]
        trees = [proposal.forward_tree() for proposal in proposals]
        self._timer.lap("draft")
        logits = self._reader.forward(trees, self._cache)  # [B, N, V]
        self._timer.lap("forward")
        outcomes = self._verify(proposals, logits)
        self._timer.lap("verify")
        self._cache.commit([outcome.path for outcome in outcomes])
        stepped = self.active
        self._finish_step(outcomes)
        seconds = self._timer.split()
        for state in stepped:
            state.step_seconds.append(seconds)

    def _verify(self, proposals: Sequence[Proposal], logits: torch.Tensor) -> list[StepOutcome]:
        """Extend every output by what its tree and the target agree on, and its bonus token."""
        ranked = self._rank_everything(proposals, logits)
        width = logits.shape[1]
        best = None if ranked is None else [ids[0] for ids in ranked.ids]
        verdicts = self._verifier.verify(self.active, proposals, logits, best)
        steps = [self._accept(*each) for each in zip(self.active, proposals, verdicts, strict=True)]
        flat = [row * width + node for row, step in enumerate(steps) for node in step.rows]
        ids, gaps = select_rows(ranked, logits, flat, self._num_ranked)
        outcomes, start = [], 0
        for row, step in enumerate(steps):
            own = slice(start, start + len(step.rows))
            outcomes.append(self._outcome(row, step, ids[own], gaps[own], logits[row]))
            start = own.stop
        return outcomes

    def _rank_everything(
        self, proposals: Sequence[Proposal], logits: torch.Tensor
    ) -> TopRows | None:
        """Return the ranking of all rows where all are offered and none is padding, else None."""
        is_wanted = all(state.drafter.needs.rows == "all" for state in self.active)
        sizes = {len(proposal.candidates) + proposal.num_drafting for proposal in proposals}
        if not is_wanted or sizes != {logits.shape[1]}:
            return None
        return top_rows(logits.flatten(0, 1), self._num_ranked)

    def _accept(self, state: SequenceState, proposal: Proposal, verdict: Verdict) -> _Step:
        """Extend one output and choose the rows that its drafter or the recording wants."""
        tree = proposal.candidates
        new = [*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus]
        committed = state.extend(new, self._rules)
        state.trace.add(proposal, verdict.path, len(committed))
        path, margins = verdict.path[: len(committed)], verdict.margins[: len(committed)]
        rows = state.drafter.needs.rows
        is_wanted = rows == "path" or self._num_top_k or self._is_ranked_for_gaps
        offered = path if is_wanted else ()
        if rows == "all":
            offered = offered_nodes(tree, path)
        drafting = proposal.drafting_rows()
        return _Step(state, proposal, path, committed, offered, drafting, margins)

    def _outcome(
        self,
        index: int,
        step: _Step,
        rows: Sequence[list[int]],
        gaps: Sequence[float],
        logits: torch.Tensor,  # [N, V]
    ) -> StepOutcome:
        """Record the rankings of one sequence's step and return what its drafter is told."""
        num = len(step.offered)
        needs = step.state.drafter.needs
        accepted = slice(num - len(step.path), num) if num else slice(0)
        self._record(step.state, rows[accepted], step.margins or gaps[accepted])
        return step_outcome(
            step.proposal,
            step.path,
            step.committed,
            step.offered,
            rows[:num],
            top_k=needs.top_k,
            drafting=rows[num:],
            logits=logits[list(step.drafting)] if needs.probabilities else None,
            hidden=self._reader.read(index, needs.taps, step.path),
        )

    def _record(
        self, state: SequenceState, rows: Sequence[list[int]], gaps: Sequence[float]
    ) -> None:
        """Keep the rankings behind the newest output tokens, as far as asked for."""
        if self._num_top_k:
            state.top_k.extend(tuple(row[: self._num_top_k]) for row in rows)
        if self._record_gaps:
            state.gaps.extend(gaps)

    def _finish_step(self, outcomes: Sequence[StepOutcome]) -> None:
        """Check the cache, drop finished requests from the batch, and tell the drafters."""
        states = self.active
        check_lengths(self._cache.lengths, states)
        rows = _rows_to_keep([state.finish_reason is None for state in states])
        self.active = [states[row] for row in rows]
        if 0 < len(rows) < len(states):
            self._cache.keep(rows)
            check_lengths(self._cache.lengths, self.active)
        self._timer.lap("commit")
        for state, outcome in zip(states, outcomes, strict=True):
            state.drafter.observe(outcome)
        self._timer.lap("draft")


def _rows_to_keep(is_kept: Sequence[bool]) -> list[int]:
    """Return the rows that are kept, with the last of them in the places of those that are not.

    So the cache copies one sequence for each that has ended, not all that come after it.
    """
    kept = [row for row, is_wanted in enumerate(is_kept) if is_wanted]
    last = reversed(kept)
    return [row if is_wanted else next(last) for row, is_wanted in enumerate(is_kept[: len(kept)])]


def _raise_if_stopped(should_stop: Callable[[], bool] | None) -> None:
    if should_stop is not None and should_stop():
        raise SearchCancelledError("decoding was asked to stop: its unfinished output is dropped")
