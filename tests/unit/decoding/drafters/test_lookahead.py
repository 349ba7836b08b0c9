"""Lookahead decoding: the published update, what is guessed when, and a slow reference."""

import pytest

from specdec_core.config.drafters import Lookahead
from specdec_core.decoding import (
    DraftBudget,
    DrafterContext,
    Proposal,
    StepOutcome,
    generate,
    make_drafter,
)
from specdec_core.tree import TokenTree
from tests.doubles import path_tokens, random_view, slow_greedy

WIDE = DraftBudget(1024, 64)


def after_each(drafting, newest):
    """Return rankings after every drafting node; only the last ones matter, the rest is noise."""
    return [[900 + node] for node in range(len(drafting) - len(newest))] + [[t] for t in newest]


def step(drafter, root, newest, committed=(8,)):
    """Run one step in which `newest` follows the columns (the prefixes while there are no more)."""
    proposal = drafter.propose([0, root], WIDE)
    rankings = after_each(proposal.drafting, newest)
    path = tuple(range(len(committed)))
    drafter.observe(StepOutcome(proposal, path, committed, drafting_top_k=rankings))
    return proposal


def started(prompt=(5,), eos_ids=(), **options):
    drafter = make_drafter(Lookahead(**options), DrafterContext(eos_ids=frozenset(eos_ids)))
    drafter.reset(prompt)
    drafter.observe(StepOutcome(None, (), (8,)))
    return drafter


def guesses(drafter, token):
    return drafter.propose([0, token], WIDE).candidates


def oracle(**options):
    """Return a drafter with W=3, N=3 and the window [21, 22], [31, 32, 33]."""
    drafter = started(window=3, ngram=3, **options)
    step(drafter, 1, [20, 21, 22])
    step(drafter, 2, [31, 32, 33])
    return drafter


def test_the_published_step_collects_three_ngrams_and_shifts_the_window():
    drafter = oracle()
    assert drafter.propose([50], WIDE).drafting == TokenTree(
        (50, 21, 22, 31, 32, 33), (-1, 0, 1, 0, 1, 2)
    )
    step(drafter, 50, [41, 42, 43])
    assert drafter.propose([60], WIDE).drafting == TokenTree(
        (60, 32, 33, 41, 42, 43), (-1, 0, 1, 0, 1, 2)
    )
    assert guesses(drafter, 50) == TokenTree.chain(50, [31, 41])
    assert guesses(drafter, 21) == TokenTree.chain(21, [32, 42])
    assert guesses(drafter, 22) == TokenTree.chain(22, [33, 43])
    assert guesses(drafter, 31) == TokenTree.root_only(31)


def test_guesses_that_begin_alike_share_nodes_the_newest_in_front():
    drafter = oracle()
    # The first column becomes [41], [51], [41] below the root 50; its n-grams begin with it.
    for newest in ([41, 42, 43], [51, 52, 53], [41, 42, 43], [61, 62, 63]):
        step(drafter, 50, newest)
    # In order: (31, 41), (41, 51), (51, 41), (41, 61).
    assert guesses(drafter, 50) == TokenTree(
        (50, 41, 61, 51, 41, 51, 31, 41), (-1, 0, 1, 0, 3, 1, 0, 6)
    )
    few = oracle(guesses=2)
    for newest in ([41, 42, 43], [51, 52, 53], [41, 42, 43], [61, 62, 63]):
        step(few, 50, newest)
    assert guesses(few, 50) == TokenTree((50, 41, 61, 51, 41), (-1, 0, 1, 0, 3))


def test_the_budget_cuts_guesses_but_not_the_window():
    drafter = oracle()
    step(drafter, 50, [41, 42, 43])
    for budget, tokens in [((1, 9), [31]), ((9, 1), [31]), ((0, 9), []), ((9, 0), [])]:
        proposal = drafter.propose([50], DraftBudget(*budget))
        assert proposal.candidates == TokenTree.chain(50, tokens)
        assert proposal.num_drafting == 5


def test_nothing_is_verified_before_the_window_is_full():
    # The repetitive prompt fills the pool at once; with N=5 three forwards fill the window.
    drafter = started(prompt=[5] * 9, ngram=5, pool_from_prompt=True)
    for num in (17, 17, 16):
        assert guesses(drafter, 5) == TokenTree.root_only(5)
        step(drafter, 5, range(num))
    tree = guesses(drafter, 5)
    assert [5, 5, 5, 5, 5] in [path_tokens(tree, node) for node in range(len(tree))]


def test_prompt_and_output_are_guesses_on_demand():
    drafter = started(prompt=[1, 2, 3], window=2, ngram=2, pool_from_prompt=True)
    assert guesses(drafter, 1) == TokenTree.chain(1, [2])
    assert guesses(drafter, 3) == TokenTree.chain(3, [8])
    drafter.observe(StepOutcome(Proposal.nothing(8), (0, 1), (4, 2)))
    drafter.observe(StepOutcome(Proposal.nothing(2), (0,), (9,)))
    assert guesses(drafter, 8) == TokenTree.chain(8, [4])
    assert guesses(drafter, 2) == TokenTree((2, 9, 3), (-1, 0, 0))
    without = started(prompt=[1, 2, 3], window=2, ngram=2)
    assert guesses(without, 1) == TokenTree.root_only(1)


def test_bigrams_need_no_warm_up():
    drafter = started(window=3, ngram=2)
    assert drafter.propose([7], WIDE).drafting == TokenTree.chain(7, [5, 5])
    step(drafter, 7, [1, 2, 3])
    assert guesses(drafter, 7) == TokenTree.chain(7, [1])
    assert guesses(drafter, 5) == TokenTree((5, 3, 2), (-1, 0, 0))
    assert drafter.propose([9], WIDE).drafting == TokenTree.chain(9, [2, 3])


def test_tokens_that_end_an_output_stay_in_ngrams_but_not_in_the_window():
    drafter = oracle(prompt=[5, 6], eos_ids=[6, 42])
    step(drafter, 50, [41, 42, 43])
    assert guesses(drafter, 21) == TokenTree.chain(21, [32, 42])
    assert drafter.propose([60], WIDE).drafting.tokens == (60, 32, 33, 41, 5, 43)


def test_a_step_without_drafting_nodes_leaves_the_window_as_it_is():
    drafter = oracle()
    before = drafter.propose([50], WIDE)
    drafter.observe(StepOutcome(Proposal(before.candidates), (0,), (8,)))
    assert drafter.propose([50], WIDE) == before


def test_the_window_starts_with_random_prompt_tokens_of_the_seed():
    prompt = list(range(100, 140))

    def starts(seed):
        drafter = make_drafter(Lookahead())
        drafter.reset(prompt, seed)
        return drafter.propose(prompt, WIDE).drafting.tokens[1:]

    assert set(starts(1)) <= set(prompt)
    assert len(set(starts(1))) > 5
    assert starts(1) == starts(1) != starts(2)


def test_needs_hold_all_guesses_and_the_widest_window():
    needs = make_drafter(Lookahead(window=7, ngram=5, guesses=7)).needs
    assert (needs.max_nodes, needs.max_drafting, needs.rows, needs.top_k) == (28, 27, "none", 1)
    # 2 + 5 tokens: 6, 5 + 6, 4 + 5 + 5, 3 + 4 * 3, 2 + 3 * 4, 1 + 2 * 5.
    assert make_drafter(Lookahead(window=2, ngram=7)).needs.max_drafting == 15


def column(text, levels, i):
    """Return what the last token of column i sees, itself included."""
    return [*text, *levels[0][:i], *(level[i] for level in levels[1:] if level is not None)]


def slow_lookahead(logits_after, prompt, starts, config, max_new_tokens):
    """Return the tokens committed per step after the first: lists, one context per column."""
    window, ngram = config.window, config.ngram

    def choice(context):
        logits = list(logits_after(context))
        return logits.index(max(logits))

    text = [*prompt, choice(prompt)]
    levels = [list(starts)] + [None] * (ngram - 2)
    pool, steps, end = {}, [], len(prompt) + max_new_tokens
    while len(text) < end:
        root, filled = text[-1], sum(level is not None for level in levels)

        best = [choice(text)]
        if filled < ngram - 1:
            if filled == 1:
                new = [choice([*text, *levels[0][: i + 1]]) for i in range(len(levels[0]))]
            else:
                new = [choice(column(text, levels, i)) for i in range(len(levels[1]))][1:]
            levels[:filled] = [level[1:] for level in levels[:filled]]
            levels[filled] = new
        else:
            out = [choice(column(text, levels, i)) for i in range(window)]
            for guess in pool.get(root, []):
                accepted = []
                while len(accepted) < ngram - 1 and guess[len(accepted)] == choice(text + accepted):
                    accepted.append(guess[len(accepted)])
                committed = [*accepted, choice(text + accepted)]
                best = max(best, committed, key=len)
            for i in range(window):
                key = root if i == 0 else levels[0][i - 1]
                ngram_tokens = (*(levels[level][i] for level in range(1, ngram - 1)), out[i])
                kept = [old for old in pool.get(key, []) if old != ngram_tokens]
                pool[key] = [*kept, ngram_tokens][-config.guesses :]
            levels = [*levels[1:], out]
            levels[0] = levels[0][1:]
        best = best[: end - len(text)]
        steps.append(len(best))
        text += best
    return steps


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "config",
    [
        Lookahead(),
        Lookahead(window=3, ngram=3, guesses=2),
        Lookahead(window=4, ngram=2, guesses=1),
        Lookahead(window=2, ngram=6, guesses=3),
    ],
    ids=str,
)
def test_every_step_accepts_what_the_slow_reference_accepts(config, seed):
    view = random_view(seed, 6, order=2)
    prompt = [seed, 3, 1, 4, 1, 5][: 1 + seed]
    drafter = make_drafter(config)
    drafter.reset(prompt, seed=seed)
    starts = drafter.propose(prompt, WIDE).drafting.tokens[1:]
    (result,) = generate(view, [prompt], [drafter], max_new_tokens=60, eos_ids=(), seeds=[seed])
    expected = slow_lookahead(view.logits_after, prompt, starts, config, 60)
    assert list(result.trace.committed) == expected
    assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, 60)


def test_a_guess_accepted_to_its_end_keeps_the_token_after_it():
    # The output counts 0, 1, 2, 0, 1, 2, ..; once its trigrams are collected, steps commit three.
    view = random_view(0, 3, order=1)
    view.logits_after = lambda context: [
        float(token == (context[-1] + 1) % 3) for token in range(3)
    ]
    drafter = make_drafter(Lookahead(window=3, ngram=3))
    (result,) = generate(view, [[0]], [drafter], max_new_tokens=40, eos_ids=())
    assert set(result.trace.committed[8:-1]) == {3}
    assert sum(result.trace.accepted) == sum(result.trace.committed) - len(result.trace.committed)
