"""The decode loop on scripted targets: every cut, count and refusal on purpose."""

import pytest

from specdec_core.config.drafters import NoDrafter
from specdec_core.decoding import DrafterNeeds, generate, loop, make_drafter
from specdec_core.errors import ConfigError
from tests.doubles import (
    ChainDrafter,
    GarbageDrafter,
    ScriptedCache,
    ScriptedView,
    random_view,
    slow_greedy,
    slow_ranking,
    table_view,
)

# 0 1 2 .. 9 0 1 ..
COUNTING = {token: (token + 1) % 10 for token in range(10)}


def counting_chain(sequence):
    """Propose the right continuation, 32 tokens of it."""
    return [(sequence[-1] + step) % 10 for step in range(1, 33)]


def decode(view, prompt, drafter, max_new_tokens, eos_ids=(), **options):
    (generation,) = generate(
        view, [prompt], [drafter], max_new_tokens=max_new_tokens, eos_ids=eos_ids, **options
    )
    return generation


def test_without_drafts_every_step_commits_one_token():
    view = random_view(seed=1)
    result = decode(view, [3, 1], make_drafter(NoDrafter()), 6)
    assert list(result.token_ids) == slow_greedy(view.logits_after, [3, 1], 6)
    assert result.finish_reason == "length"
    assert result.trace.committed == (1,) * 5
    assert result.trace.drafted == result.trace.depth == result.trace.accepted == (0,) * 5
    assert view.num_forwards == 5
    assert result.top_k == result.gaps == ()


@pytest.mark.parametrize("limit", range(1, 10))
def test_the_last_proposal_is_cut_to_the_tokens_left(limit):
    result = decode(table_view(COUNTING, 10), [0], ChainDrafter(counting_chain), limit)
    assert result.token_ids == tuple((1 + step) % 10 for step in range(limit))
    assert result.finish_reason == "length"
    # The prefill wrote one; the one step drafts what is left but its bonus.
    left = limit - 1
    steps = (left - 1,) if left else ()
    assert result.trace.drafted == result.trace.depth == result.trace.accepted == steps
    assert result.trace.committed == ((left,) if left else ())


def test_a_partial_match_commits_the_accepted_tokens_and_the_bonus():
    drafter = ChainDrafter(lambda sequence: [*counting_chain(sequence)[:2], 9, 9])
    result = decode(table_view(COUNTING, 10), [0], drafter, 8)
    assert result.token_ids == (1, 2, 3, 4, 5, 6, 7, 8)
    # 1 | 2 3 4 | 5 6 7 | 8; the last step has one token left and offers nothing.
    assert result.trace.committed == (3, 3, 1)
    assert result.trace.accepted == (2, 2, 0)
    assert result.trace.drafted == (4, 3, 0)


def test_a_stop_token_inside_an_accepted_run_ends_the_output_there():
    result = decode(table_view(COUNTING, 10), [0], ChainDrafter(counting_chain), 20, {3, 5})
    assert result.token_ids == (1, 2, 3)
    assert result.finish_reason == "stop_token"
    assert result.trace.accepted == (2,)
    assert result.trace.committed == (2,)


def test_a_stop_token_at_the_limit_is_a_stop_token():
    result = decode(table_view(COUNTING, 10), [0], ChainDrafter(counting_chain), 3, {3})
    assert (result.token_ids, result.finish_reason) == ((1, 2, 3), "stop_token")


def test_a_first_token_that_stops_needs_no_step():
    view = table_view(COUNTING, 10)
    result = decode(view, [0], ChainDrafter(counting_chain), 5, {1})
    assert (result.token_ids, result.finish_reason) == ((1,), "stop_token")
    assert result.trace.committed == ()
    assert view.num_forwards == 0


@pytest.mark.parametrize("continuation", [counting_chain, lambda sequence: []])
def test_a_stop_string_ends_the_output_where_it_is_completed(continuation):
    def stop_check(output):
        ends = [end for end in range(2, len(output) + 1) if list(output[end - 2 : end]) == [4, 5]]
        return ends[0] if ends else None

    drafter = ChainDrafter(continuation)
    result = decode(table_view(COUNTING, 10), [0], drafter, 9, stop_check=stop_check)
    assert (result.token_ids, result.finish_reason) == ((1, 2, 3, 4, 5), "stop_string")
    assert sum(result.trace.committed) == 4


def test_of_stop_token_and_stop_string_the_first_wins():
    view = table_view(COUNTING, 10)

    def stop_after(num):
        return lambda output: num if len(output) >= num else None

    def run(num):
        drafter = ChainDrafter(counting_chain)
        return decode(view, [0], drafter, 9, {5}, stop_check=stop_after(num)).finish_reason

    assert [run(num) for num in (4, 5, 6)] == ["stop_string", "stop_token", "stop_token"]


@pytest.mark.parametrize("keep", [0, 1, 99])
def test_a_stop_check_that_rewrites_history_is_refused(keep):
    drafter = ChainDrafter(counting_chain)
    with pytest.raises(ConfigError, match=f"keep {keep} of 4 output tokens after 1 were"):
        decode(
            table_view(COUNTING, 10),
            [0],
            drafter,
            4,
            stop_check=lambda output: keep if len(output) > 1 else None,
        )


@pytest.mark.parametrize("seed", [0, 3])  # in the second, one request ends with the prefill
def test_a_batch_gives_what_each_request_gives_alone(seed):
    view = random_view(seed, vocab_size=6)
    prompts = [[1], [2, 3, 4], [5, 5, 0, 1, 2]]
    alone = [decode(view, p, GarbageDrafter(i, 6), 12, {4}) for i, p in enumerate(prompts)]
    view.num_forwards = 0
    drafters = [GarbageDrafter(i, 6) for i in range(3)]
    together = generate(view, prompts, drafters, max_new_tokens=12, eos_ids={4})
    assert [g.token_ids for g in together] == [g.token_ids for g in alone]
    assert [g.trace for g in together] == [g.trace for g in alone]
    assert len({len(g.trace.committed) for g in together}) > 1
    assert view.num_forwards == max(len(g.trace.committed) for g in together)


def test_where_a_request_ends_only_the_last_one_moves():
    kept = []

    class Watched(ScriptedCache):
        def keep(self, rows):
            kept.append(list(rows))
            super().keep(rows)

    view = ScriptedView(table_view(COUNTING, 10).logits_after, 10, cache_class=Watched)
    drafters = [make_drafter(NoDrafter()) for _ in range(5)]
    found = generate(view, [[0], [3], [1], [4], [0]], drafters, max_new_tokens=4, eos_ids={5})
    outputs = [(1, 2, 3, 4), (4, 5), (2, 3, 4, 5), (5,), (1, 2, 3, 4)]
    assert [each.token_ids for each in found] == outputs
    # The fourth ends with the prefill, the second a step later, the others together.
    assert kept == [[0, 1, 2, 4], [0, 3, 2]]


def test_rankings_and_gaps_are_recorded_per_output_position():
    view = random_view(seed=2, has_ties=True)
    for drafter in (GarbageDrafter(0, 8), make_drafter(NoDrafter())):
        result = decode(view, [1, 2], drafter, 12, num_top_k=3, record_gaps=True)
        assert len(result.top_k) == len(result.gaps) == 12
        for position in range(12):
            logits = view.logits_after([1, 2, *result.token_ids[:position]])
            assert list(result.top_k[position]) == slow_ranking(logits, 3)
            assert result.gaps[position] == logits[result.top_k[position][0]] - sorted(logits)[-2]
            assert result.top_k[position][0] == result.token_ids[position]


def test_recordings_end_with_the_output():
    drafter = ChainDrafter(counting_chain)
    result = decode(table_view(COUNTING, 10), [0], drafter, 20, {4}, num_top_k=2, record_gaps=True)
    assert result.top_k == ((1, 0), (2, 0), (3, 0), (4, 0))
    assert result.gaps == (1.0,) * 4


@pytest.mark.parametrize("rows", ["none", "path", "all"])
def test_drafters_are_told_the_rankings_they_asked_for(rows):
    needs = DrafterNeeds(max_nodes=6, rows=rows, top_k=0 if rows == "none" else 2)
    drafter = ChainDrafter(lambda s: [*counting_chain(s)[:1], 9, 9], needs)
    # Another request with other needs in the batch, and a recording, must not change a thing.
    other = ChainDrafter(counting_chain, DrafterNeeds(max_nodes=6, rows="path", top_k=3))
    generate(
        table_view(COUNTING, 10),
        [[0], [5, 6]],
        [drafter, other],
        max_new_tokens=4,
        eos_ids=(),
        num_top_k=1,
    )
    first, step = drafter.outcomes[:2]
    assert (first.proposal, first.path, first.committed) == (None, (), (1,))
    assert (step.path, step.committed) == ((0, 1), (2, 3))
    expected = {
        "none": ((), ()),
        "path": ((1, 2), ([2, 0], [3, 0])),
        # 1 -> 2 -> 9: the rejected node first, then the accepted path.
        "all": ((9, 1, 2), ([0, 1], [2, 0], [3, 0])),
    }[rows]
    assert (step.row_tokens, tuple(step.top_k)) == expected
    assert first.row_tokens == (() if rows == "none" else (0,))
    assert list(first.top_k) == ([] if rows == "none" else [[1, 0]])


def test_all_rows_are_told_in_node_order_with_the_path_last():
    needs = DrafterNeeds(max_nodes=24, rows="all", top_k=2)

    class Recorder(GarbageDrafter):
        def observe(self, outcome):
            seen.append(outcome)

    view = random_view(seed=3, order=1)
    for batch_size in (1, 3):
        seen = []
        drafters = [Recorder(seed, 8, needs) for seed in range(batch_size)]
        generate(view, [[1, 2, 3]] * batch_size, drafters, max_new_tokens=16, eos_ids=())
        steps = [outcome for outcome in seen if outcome.proposal is not None]
        assert any(len(outcome.path) > 1 for outcome in steps)
        for outcome in steps:
            tree = outcome.proposal.candidates
            others = [node for node in range(len(tree)) if node not in outcome.path]
            tokens = [tree.tokens[node] for node in (*others, *outcome.path)]
            assert list(outcome.row_tokens) == tokens
            # The target looks at one token only, so a ranking is that of its token.
            assert outcome.top_k == [slow_ranking(view.logits_after([t]), 2) for t in tokens]
            assert len(outcome.path) == len(outcome.committed)


def test_rows_nobody_asked_for_are_not_ranked(monkeypatch):
    def refuse(*args):
        raise AssertionError("a ranking was computed")

    monkeypatch.setattr(loop, "top_rows", refuse)
    decode(table_view(COUNTING, 10), [0], ChainDrafter(counting_chain), 6)
    with pytest.raises(AssertionError, match="a ranking was computed"):
        decode(table_view(COUNTING, 10), [0], ChainDrafter(counting_chain), 6, num_top_k=1)


def test_every_new_token_is_told_at_once_by_request():
    told = []
    drafters = [ChainDrafter(counting_chain), make_drafter(NoDrafter())]
    generate(
        table_view(COUNTING, 10),
        [[0], [5]],
        drafters,
        max_new_tokens=4,
        eos_ids=(7,),
        on_commit=lambda index, tokens: told.append((index, tokens)),
    )
    # Prefills first; then the first accepts all that is left, the second goes on to its stop token.
    assert told == [(0, (1,)), (1, (6,)), (0, (2, 3, 4)), (1, (7,))]
