"""Medusa heads: what they start as, that they are apart, and the tree they fill."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from specdec_core.config.learned_drafters import Medusa
from specdec_core.config.sampling import Sampling
from specdec_core.decoding import DraftBudget, DrafterContext, StepOutcome, make_drafter
from specdec_core.decoding.drafters.medusa import sparse_paths
from specdec_core.drafts.initial import initialise
from specdec_core.drafts.medusa import MedusaHeads
from specdec_core.drafts.specs import DraftTarget, MedusaSpec, Provenance
from specdec_core.drafts.trainable import MedusaModule, TrainableMedusa
from specdec_core.errors import CacheDesyncError
from specdec_core.models.tiny import tiny_target
from specdec_core.training.batch import TrainingBatch
from specdec_core.tree import TokenTree
from tests.doubles import path_tokens, slow_ranking
from tests.learned_drafts import make_draft

AMPLE = DraftBudget(1000, 100)


def heads_of(num_heads=3, num_blocks=2, h=4, vocab_size=6):
    spec = MedusaSpec(hidden_size=h, num_heads=num_heads, num_blocks=num_blocks)
    heads = MedusaHeads(spec, vocab_size).double()
    initialise(heads, 1)
    return heads


def test_every_block_of_every_head_has_weights_of_its_own():
    """h (h + 1) per block, V h per head."""
    heads = heads_of(num_heads=3, num_blocks=2)
    assert sum(p.numel() for p in heads.parameters()) == 3 * (2 * 4 * 5 + 6 * 4)
    hidden = torch.linspace(-1, 1, 4, dtype=torch.float64)
    before = heads.logits(hidden, 3)
    with torch.no_grad():
        heads.blocks[1][1].linear.bias += 1.0
    after = heads.logits(hidden, 3)
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


def test_heads_start_as_the_targets_own():
    heads = heads_of()
    weight = torch.arange(24.0, dtype=torch.float64).view(6, 4)
    heads.start_as_target(weight)
    hidden = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    assert torch.equal(heads.logits(hidden, 3), (weight @ hidden).expand(3, 6))


def test_a_head_is_residual_blocks_and_one_map():
    """Against the formula, in NumPy: x + silu(W x + b), twice, then the head."""
    heads = heads_of()
    x = np.array([0.3, -1.2, 0.7, 2.0])
    weights = {name: value.detach().numpy() for name, value in heads.named_parameters()}
    for head in range(3):
        state = x
        for block in range(2):
            prefix = f"blocks.{head}.{block}.linear"
            y = weights[f"{prefix}.weight"] @ state + weights[f"{prefix}.bias"]
            state = state + y / (1 + np.exp(-y))
        expected = weights[f"lm_heads.{head}.weight"] @ state
        found = heads.logits(torch.from_numpy(x), 3)[head].detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_pass_m_is_head_m_two_places_on_and_all_gradients_are_the_heads_own():
    heads = heads_of()
    module = MedusaModule(heads)
    facts = DraftTarget(identity="x", hidden_size=4, vocab_size=6)
    draft = TrainableMedusa(module, facts, Provenance())
    hidden = torch.linspace(-1, 1, 2 * 5 * 4, dtype=torch.float64).view(2, 5, 4).requires_grad_()
    batch = TrainingBatch(
        torch.zeros(2, 5, dtype=torch.int64),
        torch.ones(2, 5, dtype=torch.bool),
        torch.tensor([5, 3]),
        hidden.detach(),
        None,
        ("a", "b"),
    )
    output = draft.forward(batch)
    assert draft.taps == ()
    assert [one.shift for one in output.passes] == [2, 3, 4]
    for head, one in enumerate(output.passes):
        logits = one.hidden @ one.head.weight.T
        expected = heads.logits(batch.hidden[1, 2], 3)[head]
        torch.testing.assert_close(logits[1, 2], expected, rtol=1e-12, atol=1e-12)
        assert one.mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    sum((one.hidden @ one.head.weight.T).square().sum() for one in output.passes).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in heads.parameters())
    assert hidden.grad is None


def test_the_published_tree_has_its_63_nodes_in_order_of_depth():
    paths = sparse_paths()
    assert Counter(map(len, paths)) == {1: 10, 2: 28, 3: 23, 4: 2}
    assert len(set(paths)) == 63
    assert all(path[:-1] in {(), *paths} for path in paths)
    # The likelier places have more below them.
    below = Counter(path[0] for path in paths)
    assert [below[rank] for rank in range(10)] == sorted(below.values(), reverse=True)


@pytest.fixture(scope="module")
def target():
    return tiny_target("llama", vocab_size=12, num_layers=2)


def drafter_at(target, kind, sequence, **options):
    """Return a drafter that was shown a state per token, and the last one."""
    draft = make_draft(kind, target, seed=3)
    context = DrafterContext(target, view=target.view(), load_draft=lambda *_: draft)
    drafter = make_drafter(Medusa(model="x", **options), context)
    drafter.reset(sequence[:-1])
    states = torch.linspace(-2, 2, (len(sequence) - 1) * 16, dtype=torch.float64).view(-1, 16)
    drafter.observe(StepOutcome(None, (), (sequence[-1],), hidden=states))
    return drafter, draft, states[-1]


@pytest.mark.parametrize("kind", ["medusa", "medusa-narrow"])
def test_the_sparse_tree_holds_the_ranks_of_the_heads(kind, target):
    sequence = [1, 2, 3]
    drafter, draft, state = drafter_at(target, kind, sequence)
    ids = list(range(12)) if draft.vocabulary is None else draft.vocabulary.target_ids.tolist()
    rows = draft.module.logits(state, 4).tolist()
    ranked = [[ids[place] for place in slow_ranking(row, 10)] for row in rows]
    tree = drafter.propose(sequence, AMPLE).candidates
    found = [tuple(path_tokens(tree, node)[1:]) for node in range(1, len(tree))]
    expected = [tuple(ranked[d][rank] for d, rank in enumerate(path)) for path in sparse_paths()]
    assert found == expected
    small = drafter.propose(sequence, DraftBudget(12, 2)).candidates
    assert small == TokenTree(tree.tokens[:13], tree.parents[:13])
    assert drafter.propose(sequence, DraftBudget(63, 1)).candidates.num_drafted == 10


def test_a_chain_is_the_best_of_every_head_and_no_longer_than_there_are(target):
    sequence = [1, 2, 3]
    drafter, draft, state = drafter_at(target, "medusa", sequence, shape="chain", gamma=9)
    rows = draft.module.logits(state, 4).tolist()
    tree = drafter.propose(sequence, AMPLE).candidates
    assert list(tree.tokens[1:]) == [slow_ranking(row, 1)[0] for row in rows]


def test_the_grown_tree_is_the_likeliest_product_of_the_heads(target):
    """Heads are independent, so that a path's chance is the product of its tokens' chances."""
    sequence = [1, 2, 3]
    options = {"shape": "dynamic", "top_k": 12, "depth": 2, "num_nodes": 20}
    drafter, draft, state = drafter_at(target, "medusa", sequence, **options)
    rows = torch.log_softmax(draft.module.logits(state, 3), -1).tolist()
    scored = {(): 0.0}
    for row in rows:
        longest = max(map(len, scored))
        for path in [path for path in scored if len(path) == longest]:
            scored.update({(*path, token): scored[path] + row[token] for token in range(12)})
    del scored[()]
    best = sorted(scored, key=lambda path: -scored[path])[:20]
    tree = drafter.propose(sequence, AMPLE).candidates
    found = {tuple(path_tokens(tree, node)[1:]) for node in range(1, len(tree))}
    assert found == set(best)


def test_states_of_another_sequence_are_noticed(target):
    drafter, *_ = drafter_at(target, "medusa", [1, 2, 3])
    with pytest.raises(CacheDesyncError, match="shown 2 hidden states for a sequence of 4"):
        drafter.propose([1, 2, 3, 4], AMPLE)


def test_drawn_chains_carry_what_they_were_drawn_from(target):
    draft = make_draft("medusa-narrow", target)
    sampling = Sampling(temperature=1.0, seed=4)
    context = DrafterContext(
        target, view=target.view(), load_draft=lambda *_: draft, sampling=sampling
    )
    config = Medusa(model="x", shape="chain", draft="sample")
    drafter = make_drafter(config, context)
    drafter.reset([1, 2])
    state = torch.linspace(-1, 1, 32, dtype=torch.float64).view(2, 16)
    drafter.observe(StepOutcome(None, (), (3,), hidden=state))
    proposal = drafter.propose([1, 2, 3], AMPLE)
    assert len(proposal.sampled) == 4
    for head, row in enumerate(draft.module.logits(state[-1], 4)):
        expected = draft.vocabulary.scatter(torch.log_softmax(row, -1), 12).exp()
        torch.testing.assert_close(proposal.sampled[head].distribution, expected)
        assert expected[1] == 0  # the id that the vocabulary lacks
