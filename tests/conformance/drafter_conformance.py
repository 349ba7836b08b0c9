"""What every drafter must hold, as a class to inherit: supply `config` and the suite runs."""

from __future__ import annotations

import pytest

from specdec_core.decoding import DRAFTERS, DraftBudget, generate, replay
from specdec_core.errors import ConfigError
from tests.conformance.drafter_runs import SEEDS, lend
from tests.conformance.sampling_conformance import SamplingConformance
from tests.doubles import slow_greedy, table_view

NUM_ROWS = 8


class DrafterConformance(SamplingConformance):
    """Subclass with a `config`; the reference scores the whole context anew for every token.

    It knows no cache and no tree.
    """

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("batch_size", [1, 3])
    def test_the_output_is_the_targets_own(self, seed: int, batch_size: int) -> None:
        view = self.view(seed)
        prompts = self.prompts(seed, view, batch_size)
        for prompt, result in zip(prompts, self.run(view, prompts, 30), strict=True):
            assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, 30)
            assert result.finish_reason == "length"

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_batch_takes_the_steps_each_request_takes_alone(self, seed: int) -> None:
        view = self.view(seed)
        prompts = self.prompts(seed, view, 3)
        eos_ids = [seed % view.vocab_size]
        together = self.run(view, prompts, 20, eos_ids)
        for prompt, result in zip(prompts, together, strict=True):
            (alone,) = self.run(view, [prompt], 20, eos_ids)
            assert (result.token_ids, result.trace) == (alone.token_ids, alone.trace)

    @pytest.mark.parametrize("limit", range(1, 10))
    def test_a_limit_is_met_exactly_and_never_passed(self, limit: int) -> None:
        for seed in SEEDS:
            view = self.view(seed)
            prompts = self.prompts(seed, view, 3)
            for prompt, result in zip(prompts, self.run(view, prompts, limit), strict=True):
                assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, limit)
                done = 1
                for depth, committed in zip(
                    result.trace.depth, result.trace.committed, strict=True
                ):
                    assert depth < limit - done
                    done += committed

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("num_stops", [1, 2, 3])
    def test_every_stop_token_ends_the_output_wherever_it_is_accepted(
        self, seed: int, num_stops: int
    ) -> None:
        view = self.view(seed)
        (prompt,) = self.prompts(seed, view, 1)
        for first in range(view.vocab_size):
            stops = [(first + step) % view.vocab_size for step in range(num_stops)]
            expected = slow_greedy(view.logits_after, prompt, 30, stops)
            (result,) = self.run(view, [prompt], 30, stops)
            assert list(result.token_ids) == expected
            is_stopped = expected[-1] in stops
            assert result.finish_reason == ("stop_token" if is_stopped else "length")

    @pytest.mark.parametrize("batch_size", [1, 3])
    def test_an_output_can_end_at_every_place_of_an_accepted_run(self, batch_size: int) -> None:
        # The target writes 1, 2, 3, 4, 0 over and over, so that long drafts are accepted; a stop
        # string ends the output after any number of tokens, mostly inside such a run.
        view = table_view({token: (token + 1) % 5 for token in range(5)}, vocab_size=5)
        prompts = [[0, 1, 2, 3, 4, 0, 1, 2][: 8 - 3 * index] for index in range(batch_size)]
        cuts = accepted = 0
        for length in range(1, 26):
            results = self.run(
                view, prompts, 40, stop_check=lambda o, n=length: n if len(o) >= n else None
            )
            for prompt, result in zip(prompts, results, strict=True):
                expected = slow_greedy(view.logits_after, prompt, length)
                assert list(result.token_ids) == expected
                assert result.finish_reason == "stop_string"
                accepted += sum(result.trace.accepted)
                cuts += result.trace.accepted[-1:] == result.trace.committed[-1:] != ()
        assert (accepted > 0) == (cuts > 0) == self.repeats_cycles, (accepted, cuts)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_the_last_positions_of_the_target_can_be_written(self, seed: int) -> None:
        view = self.view(seed)
        for prompt in self.prompts(seed, view, 3):
            view.max_positions = len(prompt) + 12
            (result,) = self.run(view, [prompt], 12)
            assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, 12)

    def test_drafts_are_accepted_unequally_in_a_batch(self) -> None:
        """Everything else here would hold of a drafter that never drafts."""
        if self.config.method == "none":
            return
        accepted = rejected = unequal = branched = 0
        for seed in SEEDS:
            view = self.view(seed)
            traces = [each.trace for each in self.run(view, self.prompts(seed, view, 3), 30)]
            unequal += len({trace.accepted for trace in traces}) > 1
            for trace in traces:
                branched += trace.drafted != trace.depth
                accepted += sum(trace.accepted)
                pairs = zip(trace.depth, trace.accepted, strict=True)
                rejected += sum(depth > num for depth, num in pairs)
        assert min(accepted, rejected, unequal) > 0
        assert (branched > 0) == (self.config.drafts_trees and not self.is_narrow)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_counts_agree_with_the_output(self, seed: int) -> None:
        view = self.view(seed)
        for result in self.run(view, self.prompts(seed, view, 3), 30, [0]):
            trace = result.trace
            assert 1 + sum(trace.committed) == len(result.token_ids)
            accepted_and_bonus = [accepted + 1 for accepted in trace.accepted]
            assert trace.committed[:-1] == tuple(accepted_and_bonus[:-1])
            # Only the step that ends the output can be cut before its bonus.
            assert trace.committed[-1:] in (trace.accepted[-1:], tuple(accepted_and_bonus[-1:]))
            assert all(num >= 1 for num in trace.committed)
            for drafted, depth, accepted in zip(
                trace.drafted, trace.depth, trace.accepted, strict=True
            ):
                assert drafted >= depth >= accepted

    @pytest.mark.parametrize("seed", SEEDS)
    def test_the_same_run_twice_takes_the_same_steps(self, seed: int) -> None:
        view = self.view(seed)
        prompts = self.prompts(seed, view, 3)
        first, second = (self.run(view, prompts, 20) for _ in range(2))
        assert [(g.token_ids, g.trace) for g in first] == [(g.token_ids, g.trace) for g in second]

    @pytest.mark.parametrize("seed", SEEDS)
    def test_proposals_keep_every_budget_and_repeat_themselves(self, seed: int) -> None:
        view = self.view(seed)
        (prompt,) = self.prompts(seed, view, 1)
        drafter = self.drafter_for(view)
        (result,) = generate(view, [prompt], [drafter], max_new_tokens=20, eos_ids=())
        sequence = [*prompt, *result.token_ids]
        for max_nodes in (0, 1, 2, 5, 200):
            for max_depth in (0, 1, 2, 200):
                budget = DraftBudget(max_nodes, max_depth)
                lend(drafter, view, sequence)
                proposal = drafter.propose(sequence, budget)
                tree = proposal.candidates
                assert tree.tokens[0] == sequence[-1]
                assert tree.num_drafted <= min(max_nodes, drafter.needs.max_nodes)
                longest = self.config.max_path
                assert tree.max_depth <= (max_depth if longest is None else min(max_depth, longest))
                tree.validate(view.vocab_size)
                assert drafter.propose(sequence, budget) == proposal

    def test_one_unrepeated_token_is_a_legal_prompt_to_propose_for(self) -> None:
        drafter = self.drafter_for(self.view(0))
        drafter.reset([2])
        assert drafter.propose([2], DraftBudget(64, 64)).candidates.num_drafted == 0

    def test_needs_are_consistent(self) -> None:
        needs = self.drafter_for(self.view(0)).needs
        assert (needs.rows == "none" and needs.max_drafting == 0) == (needs.top_k == 0)
        assert (needs.max_nodes == 0) == (self.config.method == "none")

    @pytest.mark.parametrize("seed", SEEDS)
    def test_reset_forgets_exactly_what_the_state_scope_says(self, seed: int) -> None:
        view = self.view(seed)
        prompts = self.prompts(seed, view, 3)
        drafter = self.drafter_for(view)
        fresh = self.run(view, prompts, 20)
        for index in (2, 0, 1, 2):
            (again,) = generate(view, [prompts[index]], [drafter], max_new_tokens=20, eos_ids=())
            assert again.token_ids == fresh[index].token_ids
            if getattr(self.config, "state_scope", "prompt") == "prompt":
                assert again.trace == fresh[index].trace

    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_replay_is_the_decode_without_the_model(self, seed: int) -> None:
        if not self.config.is_replayable:
            if DRAFTERS.needs(self.config).is_replayable:
                return  # it could be replayed, at the cost of running its own model
            with pytest.raises(ConfigError, match="cannot be replayed"):
                replay(
                    self.drafter_for(self.view(0)), [0], [1], [[1]], max_new_tokens=1, vocab_size=3
                )
            return
        view = self.view(seed)
        for eos_ids in ((), (seed % view.vocab_size,)):
            for prompt in self.prompts(seed, view, 3):
                for limit in (1, 2, 7, 30):
                    (result,) = self.run(view, [prompt], limit, eos_ids, num_top_k=NUM_ROWS)
                    trace = replay(
                        self.drafter_for(view),
                        prompt,
                        result.token_ids,
                        result.top_k,
                        max_new_tokens=limit,
                        vocab_size=view.vocab_size,
                    )
                    assert trace == result.trace
