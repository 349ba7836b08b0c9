"""Progressive Tree Drafting as a drafter: what it forwards, learns, and leaves alone."""

import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.ptd import Ptd
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import (
    DraftBudget,
    DrafterContext,
    StepOutcome,
    make_drafter,
)
from specdec_core.models.tiny import tiny_target
from specdec_core.tree import TokenTree
from tests.doubles import path_tokens, random_view, slow_greedy, table_view
from tests.unit.decoding.drafters.watched import (
    DRAFTS_ONLY,
    WIDE,
    as_nested,
    decode,
    watched,
)
from tests.unit.decoding.progressive.notation import paths


def test_a_step_forwards_the_tree_of_the_last_token_and_the_forest():
    sizes = set()
    for seed in range(8):
        drafter = watched(**DRAFTS_ONLY, sub_trees=1, init="random", width=2, depth=3)
        drafter.reset([7], seed)  # the seed chain can only be 7, or 7 twice
        drafter.observe(StepOutcome(None, (), (7,)))
        proposal = drafter.propose([7, 7], WIDE)
        forest = proposal.drafting
        assert set(forest.tokens) == {7}
        assert proposal.candidates == TokenTree.root_only(7)
        rankings = [[5], [3], [9]][: len(forest)]
        drafter.observe(StepOutcome(proposal, (0,), (7,), (), (), (), rankings))
        proposal = drafter.propose([7, 7, 7], WIDE)
        sizes.add(len(forest))
        if len(forest) == 2:
            assert proposal.candidates == TokenTree.chain(7, [3])
            assert proposal.drafting == TokenTree.chain(7, [7, 3])
        else:
            # The chain 7, 7 became 7(7(9) 3): under 7 there are 7, 9 and 3.
            assert set(paths(as_nested(proposal.candidates))) == {
                *((7,), (7, 3), (7, 7), (7, 7, 9), (7, 9))
            }
    assert sizes == {2, 3}


def test_staggered_nodes_stand_where_masks_and_positions_say():
    """On a model, every forest node's row is that of the plain sequence of its ancestors."""
    target = tiny_target("llama", seed=1, dtype="float64", vocab_size=7)
    view = target.view()
    prompt = [3, 1, 4, 1, 5]
    drafter = watched(width=3, depth=3)
    decode(view, drafter, prompt, limit=16)
    proposals = sorted(drafter.proposals, key=lambda proposal: proposal.num_drafting)[-3:]
    assert proposals[0].num_drafting >= 4
    assert any(proposal.candidates.num_drafted for proposal in proposals)
    for proposal in proposals:
        tree = proposal.forward_tree()
        tree = TokenTree((2, *tree.tokens[1:]), tree.parents)
        cache = view.new_cache(1, 64)
        view.prefill([prompt], cache)
        rows = view.forward([tree], cache)[0]
        for node in range(len(tree)):
            context = [*prompt, *path_tokens(tree, node)]
            alone = view.prefill([context], view.new_cache(1, len(context)))[0]
            torch.testing.assert_close(rows[node], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_candidates_do_not_feel_the_forest(family):
    """Kernels are chosen by shape, so that rounding may differ; masks never let anything pass."""
    view = tiny_target(family, seed=2, dtype="float64", vocab_size=7).view()
    prompt = [3, 1, 4, 1, 5]
    drafter = watched(width=4, depth=4)
    decode(view, drafter, prompt, limit=12)
    proposals = [p for p in drafter.proposals if p.num_drafting and p.candidates.num_drafted]
    assert proposals
    for proposal in proposals:
        rows = []
        for tree in (proposal.candidates, proposal.forward_tree()):
            cache = view.new_cache(1, 128)
            view.prefill([prompt], cache)
            rows.append(view.forward([tree], cache)[0][: len(proposal.candidates)])
        torch.testing.assert_close(*rows, rtol=0, atol=1e-12)


def test_an_empty_pool_takes_one_step_per_token():
    """A pool that waits for a depth of 16 stays empty for 12 tokens."""
    drafter = watched(profile="release", width=1, depth=16, verified="off")
    view = random_view(3, 8)
    result = decode(view, drafter, limit=12)
    assert list(result.token_ids) == slow_greedy(view.logits_after, (1, 2, 3), 12)
    assert result.trace.drafted == (0,) * 11
    assert view.num_forwards == 11


def test_the_release_verifies_nothing_before_the_forest_has_all_its_levels():
    """The seed has one level or two, every step adds one, and the step with all four merges."""
    view = table_view({0: 0}, 4)
    first = {}
    for seed in range(8):
        for pool_start in ("full", "first"):
            drafter = watched(profile="release", depth=4, sub_trees=1, pool_start=pool_start)
            result = decode(view, drafter, prompt=[0], limit=30, seeds=[seed])
            levels = drafter.proposals[0].num_drafting
            step = next(i for i, drafted in enumerate(result.trace.drafted) if drafted)
            first[pool_start, levels] = step
    # Merged in step index 4 - levels, verified in the next.
    assert first == {("full", 1): 4, ("full", 2): 3, ("first", 1): 1, ("first", 2): 1}


@pytest.mark.parametrize("profile", ["default", "paper", "release"])
@pytest.mark.parametrize("seed", range(4))
def test_decoding_efficiency_is_the_identity_of_its_parts(profile, seed):
    """DE = HR * AL + 1 - HR, all of them from the steps as they were."""
    result = decode(random_view(seed, 8, order=2), watched(profile=profile), limit=61)
    steps = list(zip(result.trace.drafted, result.trace.accepted, strict=True))
    hits = [accepted + 1 for drafted, accepted in steps if drafted]
    hit_rate = len(hits) / len(steps)
    length = sum(hits) / len(hits) if hits else 0.0
    efficiency = sum(accepted + 1 for _, accepted in steps) / len(steps)
    assert efficiency == pytest.approx(hit_rate * length + 1 - hit_rate, abs=1e-12)


@pytest.mark.parametrize("profile", ["default", "paper", "release"])
def test_sampled_output_is_that_of_plain_sampling_token_for_token(profile):
    """Also under the release's profile, whose own sampling prefers the likeliest token."""
    sampling = Sampling(temperature=1.3, seed=5)
    num_accepted = 0
    for seed in range(6):
        view = random_view(seed, 5, order=2)
        drafter = watched(profile=profile, width=3, depth=3)
        result = decode(view, drafter, limit=50, sampling=sampling, seeds=[seed])
        plain = decode(view, make_drafter(NoDrafter()), limit=50, sampling=sampling, seeds=[seed])
        assert result.token_ids == plain.token_ids
        num_accepted += sum(result.trace.accepted)
    assert num_accepted > 10


@given(
    width=st.integers(1, 4),
    depth=st.integers(1, 4),
    profile=st.sampled_from(["default", "paper", "release"]),
    expansion=st.sampled_from(["greedy", "top-k", "top-p"]),
    vocab_size=st.integers(2, 8),
    seed=st.integers(0, 99),
    eos=st.sampled_from([(), (0,), (0, 1)]),
    fallback=st.sampled_from(["none", "prompt-lookup"]),
)
@settings(max_examples=60, deadline=None)
def test_structure_after_every_step(
    width, depth, profile, expansion, vocab_size, seed, eos, fallback
):
    view = random_view(seed, vocab_size, order=1 + seed % 3)
    drafter = watched(
        eos,
        width=width,
        depth=depth,
        profile=profile,
        expansion=expansion,
        expansion_k=2,
        expansion_p=0.5,
        fallback=fallback,
    )
    prompt = [seed % vocab_size, vocab_size - 1, 0]
    result = decode(view, drafter, prompt, limit=25, seeds=[seed])
    assert list(result.token_ids) == slow_greedy(view.logits_after, prompt, 25)
    num_trees = 1 if profile == "paper" else width
    most_levels = depth if profile == "paper" else depth + num_trees - 1
    for proposal in drafter.proposals:
        proposal.candidates.validate(vocab_size)
        assert proposal.num_drafting <= drafter.needs.max_drafting
        if proposal.drafting is not None:
            assert proposal.drafting.max_depth <= most_levels
        if profile == "default" and not {*prompt} <= {*eos}:
            assert not drafted_tokens(proposal) & {*eos}
            if fallback == "none":  # the prompt itself may go on after such a token
                assert not inner_candidates(proposal) & {*eos}


def drafted_tokens(proposal):
    return set() if proposal.drafting is None else {*proposal.drafting.tokens[1:]}


def inner_candidates(proposal):
    tree = proposal.candidates
    return {tree.tokens[parent] for parent in tree.parents[1:] if parent > 0}


def test_the_forest_rides_along_every_period_but_never_in_vain():
    drafter = watched(period=3)
    decode(random_view(1, 8), drafter, limit=20)
    due = [proposal.drafting is not None for proposal in drafter.proposals]
    depths = [step % 3 == 0 for step in range(len(due))]
    assert due[:-2] == depths[:-2]
    # With one more token to propose at most, what it drafts comes too late.
    assert drafter.drafter.propose([1, 2], DraftBudget(9, 1)).drafting is None


def test_seeds_follow_the_requests_seed_alone():
    prompt = list(range(1, 16))

    def forest(seed, drafter=None):
        drafter = drafter or watched().drafter
        drafter.reset(prompt, seed)
        return drafter.propose(prompt, WIDE).drafting

    used = watched().drafter
    used.reset([3, 4])
    assert forest(5) == forest(5) == forest(5, used)
    assert len({forest(seed) for seed in range(20)}) > 5


def test_entities_need_a_tokenizer_and_say_so(caplog):
    with caplog.at_level(logging.WARNING):
        drafter = watched(init="ner").drafter
    assert "init=random is used" in caplog.text
    drafter.reset([4, 5], 3)
    fallback = watched().drafter
    fallback.reset([4, 5], 3)
    assert drafter.propose([4, 5], WIDE) == fallback.propose([4, 5], WIDE)


def test_a_target_without_a_tokenizer_is_none_to_read_with(caplog):
    target = tiny_target("llama")
    with caplog.at_level(logging.WARNING):
        make_drafter(Ptd(init="ner"), DrafterContext(target))
    assert "init=random is used" in caplog.text


def test_probabilities_are_those_of_the_target():
    view = random_view(2, 6, order=3)
    drafter = watched(expansion="top-p", expansion_k=3)
    prompt = [1, 2, 3]
    decode(view, drafter, prompt, limit=12)
    text = list(prompt)
    checked = 0
    for outcome in drafter.outcomes:
        for node, (ids, found) in enumerate(
            zip(outcome.drafting_top_k, outcome.drafting_probabilities, strict=True)
        ):
            context = [*text[:-1], *path_tokens(outcome.proposal.drafting, node)]
            logits = torch.tensor(view.logits_after(context), dtype=torch.float64)
            expected = logits.softmax(0)[torch.tensor(ids)]
            torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), expected)
            checked += 1
        text.extend(outcome.committed)
    assert checked > 20


def test_needs_follow_the_options():
    needs = make_drafter(Ptd()).needs
    assert (needs.max_nodes, needs.max_drafting) == (48, 4 * 31)
    assert (needs.rows, needs.top_k, needs.probabilities) == ("all", 1, False)
    drawn = make_drafter(Ptd(profile="paper", expansion="top-k")).needs
    assert (drawn.rows, drawn.top_k, drawn.probabilities) == ("none", 8, True)
    assert drawn.max_drafting == 31
    assert make_drafter(Ptd(width=2, depth=3)).needs.max_drafting == 2 * 4
