"""Self-draft step by step against a slow reference that knows no pool and no cache."""

import pytest

from specdec_core.config.window_drafters import SelfDraft
from specdec_core.decoding import (
    DraftBudget,
    generate,
    make_drafter,
)
from tests.doubles import random_view, slow_greedy


def slow_self_draft(logits_after, prompt, snippets, config, max_new_tokens):
    """Return the tokens committed per step after the first: lists, one context per token."""
    size, num_levels = config.context_ngram, config.branch_len - 2

    def choice(context):
        logits = list(logits_after(context))
        return logits.index(max(logits))

    pool, steps, levels = {}, [], []

    def enter(run):
        kept = [old for old in pool.get(run[0], []) if old != run[1:]]
        pool[run[0]] = [*kept, run[1:]][-10:]

    text, entered, end = list(prompt), 0, len(prompt) + max_new_tokens

    def enter_text():
        for stop in range(max(entered, size) + (entered == 0), len(text) + 1):
            if stop > size and stop > entered:
                enter(tuple(text[stop - size - 1 : stop]))
        return len(text)

    entered = enter_text()
    text.append(choice(prompt))
    entered = enter_text()
    while len(text) < end:
        columns = [[], *snippets]
        columns = [[*column, *(level[i] for level in levels)] for i, column in enumerate(columns)]
        after = [[choice(text + c[: j + 1]) for j in range(len(c))] for c in columns]
        out = [best[-1] if best else choice(text) for best in after]
        best = [choice(text)]
        if len(levels) < num_levels:
            snippets = snippets[1:]
            levels = [level[1:] for level in [*levels, out]]
        else:
            for draft in pool.get(text[-1], []):
                accepted = []
                while len(accepted) < size and draft[len(accepted)] == choice(text + accepted):
                    accepted.append(draft[len(accepted)])
                best = max(best, [*accepted, choice(text + accepted)], key=len)
            # The first branch continues the context, the others their snippets.
            for i, column in enumerate(columns):
                before = text if i == 0 else []
                line = [*before, *column]
                following = [*before[1:], *([choice(text)] if i == 0 else []), *after[i]]
                for stop in range(len(line)):
                    begin = stop - size + 1
                    if begin >= 0 and stop >= len(before) - 1:
                        enter((*line[begin : stop + 1], following[stop]))
            snippets = [[*s, levels[0][i + 1]][1:] for i, s in enumerate(snippets)]
            levels = [*levels[1:], out]
        best = best[: end - len(text)]
        steps.append(len(best))
        text += best
        entered = enter_text()
    return steps


def snippets_of(tree):
    """Return the snippets of a drafting tree before its first forward."""
    found = []
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        if parent == 0:
            found.append([])
        found[-1].append(token)
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "config",
    [
        SelfDraft(),
        SelfDraft(branch_num=2, branch_len=3, context_ngram=2, prefix_len=3),
        SelfDraft(branch_num=3, branch_len=3, context_ngram=1, prefix_len=1),
        SelfDraft(branch_num=4, branch_len=8, context_ngram=3, prefix_len=4),
    ],
    ids=str,
)
def test_every_step_accepts_what_the_slow_reference_accepts(config, seed):
    view = random_view(seed, 6, order=2)
    prompt = [seed, 3, 1, 4, 1, 5][: 1 + seed]
    drafter = make_drafter(config)
    drafter.reset(prompt, seed)
    snippets = snippets_of(drafter.propose(prompt, DraftBudget(1024, 64)).drafting)
    lengths = [len(snippet) for snippet in snippets]
    assert lengths[: config.branch_len - 2] == [1] * (config.branch_len - 2)
    assert set(lengths) <= set(range(1, config.prefix_len + 1))
    (result,) = generate(view, [prompt], [drafter], max_new_tokens=60, eos_ids=(), seeds=[seed])
    expected = slow_self_draft(view.logits_after, prompt, snippets, config, 60)
    assert list(result.trace.committed) == expected
    assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, 60)
