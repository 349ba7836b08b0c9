"""Sampled decoding against a slow plain reference, and what it must not depend on."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.config.sampling import Sampling, parse_sampling
from specdec_core.decoding import (
    generate,
    make_drafter,
)
from specdec_core.decoding.verification import TreeRows
from specdec_core.randomness import Noise, derive_seed
from specdec_core.tree import TokenTree
from tests.doubles import ChainDrafter, GarbageDrafter, LogitsAfter, random_view
from tests.sampled_law import prompts_of

TEXTS = (
    "temperature=1",
    "temperature=0.6,top_k=4",
    "temperature=1.7,top_p=0.8",
    "temperature=1.2,top_k=6,top_p=0.9,min_p=0.1,seed=11",
    "temperature=0.9,repetition_penalty=1.5,presence_penalty=0.4",
    "repetition_penalty=1.8,presence_penalty=1.5",
)


def slow_scores(
    logits: Sequence[float], sampling: Sampling, tokens: Sequence[int], num_prompt: int
) -> list[float]:
    """Return processed logits with plain numbers, minus infinity where excluded."""
    scores = list(logits)
    for token in range(len(scores)):
        if token in tokens:
            factor = sampling.repetition_penalty
            scores[token] *= 1 / factor if scores[token] > 0 else factor
        if token in tokens[num_prompt:]:
            scores[token] -= sampling.presence_penalty
    if sampling.temperature == 0:
        return scores
    scores = [score / sampling.temperature for score in scores]
    order = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    order = order[: sampling.top_k or len(order)]
    weights = [math.exp(scores[token]) for token in order]
    kept, mass = [], 0.0
    for token, weight in zip(order, weights, strict=True):
        if mass < sampling.top_p and weight >= sampling.min_p * weights[0]:
            kept.append(token)
        mass += weight / sum(weights)
    return [score if token in kept else -math.inf for token, score in enumerate(scores)]


def slow_noise(sampling: Sampling, seed: int, position: int, token: int) -> float:
    """Return Gumbel noise from the published generator, in plain numbers."""
    mask = 2**64 - 1
    start = derive_seed(sampling.seed, seed, "sample", position)
    value = (start + (token + 1) * 0x9E3779B97F4A7C15) & mask
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
    value ^= value >> 31
    return -math.log(-math.log(((value >> 12) + 0.5) / 2**52))


def slow_sampled(
    logits_after: LogitsAfter, prompt: Sequence[int], num: int, sampling: Sampling, seed: int
) -> tuple[list[int], list[float]]:
    """Return plain sampled output and by how much each token won."""
    tokens, gaps = list(prompt), []
    while len(tokens) < len(prompt) + num:
        scores = slow_scores(logits_after(tokens), sampling, tokens, len(prompt))
        if sampling.temperature:
            noise = [slow_noise(sampling, seed, len(tokens), i) for i in range(len(scores))]
            scores = [score + one for score, one in zip(scores, noise, strict=True)]
        best, second = sorted(scores, reverse=True)[:2]
        gaps.append(best - second)
        tokens.append(scores.index(best))
    return tokens[len(prompt) :], gaps


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", range(4))
def test_outputs_and_gaps_are_those_of_plain_sampling(text, seed):
    sampling = parse_sampling(text)
    view = random_view(seed, 8)
    prompts = prompts_of(seed, 3, 8)
    seeds = [seed, seed + 5, seed + 9]
    results = generate(
        view,
        prompts,
        [GarbageDrafter(seed, 8) for _ in prompts],
        max_new_tokens=20,
        eos_ids=(),
        sampling=sampling,
        seeds=seeds,
        record_gaps=True,
    )
    for prompt, own, result in zip(prompts, seeds, results, strict=True):
        tokens, gaps = slow_sampled(view.logits_after, prompt, 20, sampling, own)
        assert list(result.token_ids) == tokens
        assert list(result.gaps) == pytest.approx(gaps, abs=1e-12)
        assert result.is_sampled == (sampling.temperature > 0)
    assert sum(sum(result.trace.accepted) for result in results) > 0


@pytest.mark.parametrize("text", TEXTS)
def test_the_right_continuation_is_accepted_whole(text):
    sampling = parse_sampling(text)
    view = random_view(2, 8)
    prompt = [3, 1, 4]
    expected, _ = slow_sampled(view.logits_after, prompt, 25, sampling, 6)
    drafter = ChainDrafter(lambda sequence: expected[len(sequence) - 3 :])
    (result,) = generate(
        view, [prompt], [drafter], max_new_tokens=25, eos_ids=(), sampling=sampling, seeds=[6]
    )
    assert list(result.token_ids) == expected
    assert result.trace.committed == (24,)
    assert result.trace.accepted == (23,)


@pytest.mark.parametrize("config", [NoDrafter(), PromptLookup(), TokenRecycling()], ids=str)
def test_a_request_does_not_depend_on_the_others_their_order_or_number(config):
    sampling = parse_sampling("temperature=0.8,top_p=0.95")
    view = random_view(7, 8, order=1)
    prompts = prompts_of(1, 10, 8)
    seeds = [derive_seed(index) for index in range(10)]

    def decode(order):
        results = generate(
            view,
            [prompts[i] for i in order],
            [make_drafter(config) for _ in order],
            max_new_tokens=15,
            eos_ids=[0],
            sampling=sampling,
            seeds=[seeds[i] for i in order],
        )
        return {i: (r.token_ids, r.trace) for i, r in zip(order, results, strict=True)}

    together = decode(list(range(10)))
    assert decode(list(reversed(range(10)))) == together
    apart = decode([0, 3, 6, 9]) | decode([1, 4, 7]) | decode([8, 5, 2])
    assert apart == together
    assert len({tokens for tokens, _ in together.values()}) > 5


def test_another_seed_of_run_or_request_gives_another_output():
    view = random_view(7, 8)

    def decode(run_seed, seed):
        (result,) = generate(
            view,
            [[1]],
            [make_drafter(NoDrafter())],
            max_new_tokens=20,
            eos_ids=(),
            sampling=Sampling(temperature=1.0, seed=run_seed),
            seeds=[seed],
        )
        return result.token_ids

    outputs = {decode(*seeds) for seeds in ((0, 0), (0, 1), (1, 0), (1, 1))}
    assert len(outputs) == 4
    assert decode(1, 0) == decode(1, 0)


@pytest.mark.parametrize("verification", ["auto", "match", "residual", "rejection", "typical"])
def test_every_rule_makes_progress_and_repeats_itself(verification):
    sampling = Sampling(temperature=1.0, verification=verification)
    view = random_view(3, 8)

    def decode():
        return generate(
            view,
            prompts_of(2, 3, 8),
            [GarbageDrafter(seed, 8) for seed in range(3)],
            max_new_tokens=30,
            eos_ids=(),
            sampling=sampling,
            seeds=[1, 2, 3],
        )

    first, second = decode(), decode()
    assert [(r.token_ids, r.trace) for r in first] == [(r.token_ids, r.trace) for r in second]
    assert all(len(result.token_ids) == 30 for result in first)
    assert all(sum(result.trace.accepted) > 0 for result in first)


def test_rows_of_a_tree_see_the_history_of_their_own_path():
    # 5 -> 6 -> 7
    #   -> 7
    tree = TokenTree((5, 6, 7, 7), (-1, 0, 1, 0))
    sampling = parse_sampling("repetition_penalty=2,presence_penalty=1")
    logits = torch.ones(4, 9, dtype=torch.float64)
    rows = TreeRows(logits, tree, (4, 5), 1, sampling)
    # 4 is prompt (halved), 5 and the path are output (halved, less 1).
    expected = {0: {4: 0.5, 5: -0.5}, 1: {6: -0.5}, 2: {6: -0.5, 7: -0.5}, 3: {7: -0.5}}
    for node, changes in expected.items():
        values = {4: 0.5, 5: -0.5} | changes
        assert rows.processed(node).tolist() == [values.get(token, 1.0) for token in range(9)]
    assert [rows.position(node) for node in range(4)] == [2, 3, 4, 3]
    assert bool((logits == 1).all())


def test_the_noise_of_the_target_can_be_used_by_a_drafter():
    """Coupled drafts: the same noise on a nearly equal law nearly always draws the same token."""
    view = random_view(9, 8)
    sampling = Sampling(temperature=1.0, verification="match")
    noise = Noise(sampling.seed, 3)

    def continuation(sequence):
        tokens = list(sequence)
        for _ in range(8):
            logits = torch.tensor(view.logits_after(tokens), dtype=torch.float64)
            scores = logits + 1e-3 + noise.gumbel("sample", len(tokens), torch.arange(8))
            tokens.append(int(scores.argmax()))
        return tokens[len(sequence) :]

    (result,) = generate(
        view,
        [[1]],
        [ChainDrafter(continuation)],
        max_new_tokens=28,
        eos_ids=(),
        sampling=sampling,
        seeds=[3],
    )
    assert result.trace.committed == (9, 9, 9)
