"""What a sampled decode records: gaps, and what a replay needs; what is refused."""

from __future__ import annotations

import pytest
import torch

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.config.sampling import Sampling, parse_sampling
from specdec_core.decoding import (
    DrafterNeeds,
    Proposal,
    compare_outputs,
    generate,
    make_drafter,
    replay,
)
from specdec_core.decoding.proposal import SampledChildren
from specdec_core.errors import ConfigError
from specdec_core.tree import TokenTree
from tests.doubles import ChainDrafter, random_view
from tests.sampled_law import prompts_of


def test_a_replay_is_the_sampled_decode_without_the_model():
    sampling = parse_sampling("temperature=0.7,repetition_penalty=1.1,seed=4")
    view = random_view(5, 8, order=1)
    for config in (PromptLookup(), TokenRecycling(update="path", num_nodes=12)):
        for prompt in prompts_of(3, 4, 8):
            (result,) = generate(
                view,
                [prompt],
                [make_drafter(config)],
                max_new_tokens=30,
                eos_ids=(),
                num_top_k=8,
                sampling=sampling,
                seeds=[9],
            )
            trace = replay(
                make_drafter(config),
                prompt,
                result.token_ids,
                result.top_k,
                max_new_tokens=30,
                vocab_size=8,
                sampling=sampling,
                seed=9,
            )
            assert trace == result.trace
            assert sum(trace.accepted) > 0


def draws_its_child(sequence_root: int) -> Proposal:
    sampled = {0: SampledChildren((1,), torch.full((8,), 1 / 8))}
    return Proposal(TokenTree.chain(sequence_root, [3]), sampled=sampled)


class Draws(ChainDrafter):
    """Says that its one child was drawn from the uniform distribution."""

    def propose(self, sequence, budget):
        return draws_its_child(sequence[-1])


def draws():
    return Draws(lambda sequence: [], DrafterNeeds(max_nodes=1))


def decode_one(drafter, text, **options):
    (result,) = generate(
        random_view(5, 8),
        [[1]],
        [drafter],
        max_new_tokens=6,
        eos_ids=(),
        sampling=parse_sampling(text),
        **options,
    )
    return result


def test_rules_whose_outputs_depend_on_drafts_are_not_replayed():
    options = {"max_new_tokens": 6, "vocab_size": 8}
    for rule in ("residual", "rejection", "typical"):
        sampling = Sampling(temperature=1.0, verification=rule)
        with pytest.raises(ConfigError, match=f"verification={rule} depend on the drafts"):
            replay(make_drafter(PromptLookup()), [1], [2, 3], (), sampling=sampling, **options)
    with pytest.raises(ConfigError, match="Draws draws its candidates"):
        replay(draws(), [1], [2, 3], (), sampling=Sampling(temperature=1.0), **options)
    matched = decode_one(draws(), "temperature=1,verification=match")
    sampling = parse_sampling("temperature=1,verification=match")
    trace = replay(draws(), [1], matched.token_ids, (), sampling=sampling, **options)
    assert trace == matched.trace


def test_gaps_are_refused_where_no_score_decides():
    with pytest.raises(ConfigError, match=r"verification=residual .* no gaps to record"):
        decode_one(draws(), "temperature=1,verification=residual", record_gaps=True)
    with pytest.raises(ConfigError, match="gaps were to be recorded, but the drafter drew"):
        decode_one(draws(), "temperature=1", record_gaps=True)
    assert len(decode_one(draws(), "", record_gaps=True).gaps) == 6


def test_a_near_tie_of_perturbed_scores_is_a_tie_whatever_was_ranked():
    result = decode_one(make_drafter(NoDrafter()), "temperature=1", record_gaps=True, num_top_k=2)
    other = list(result.token_ids)
    other[2] = next(t for t in range(8) if t not in (other[2], *result.top_k[2]))
    gap = result.gaps[2]
    assert compare_outputs(result, other, gap * 1.01).kind == "tie"
    assert compare_outputs(result, other, gap * 0.99).kind == "defect"


def test_requests_that_would_share_their_noise_are_refused():
    view, drafters = random_view(5, 8), [make_drafter(NoDrafter()) for _ in range(2)]
    options = {"max_new_tokens": 2, "eos_ids": ()}
    with pytest.raises(ConfigError, match="2 prompts are sampled without seeds"):
        generate(view, [[1], [2]], drafters, sampling=Sampling(temperature=1.0), **options)
    with pytest.raises(ConfigError, match="1 seeds were given for 2 prompts"):
        generate(view, [[1], [2]], drafters, seeds=[1], **options)
    assert len(generate(view, [[1], [2]], drafters, **options)) == 2
