"""Which token a pass predicts, on a language where every token has one successor."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.drafts.checkpoint import LearnedDraft
from specdec_core.drafts.eagle import EagleHead
from specdec_core.drafts.eagle_training import EagleModule, EagleTraining
from specdec_core.drafts.medusa import MedusaHeads
from specdec_core.drafts.specs import DraftTarget, EagleSpec, MedusaSpec
from specdec_core.drafts.trainable import FrozenEnds, MedusaModule
from specdec_core.models.linear import Linear
from specdec_core.models.rotary import RotaryTable
from specdec_core.models.tiny import tiny_library_model, tiny_target
from specdec_core.training.alignment import by_position, prediction_mask
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import Head
from tests.doubles import table_view

V = 5
SURE = 30.0
NEXT = {token: (token + 1) % V for token in range(V)}
CYCLE = [(place + 2) % V for place in range(12)]
SHIFTS = range(1, 5)
OPTIONS = {
    "vocab_size": V,
    "hidden_size": V,
    "num_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}


def successor(num=1):
    """Return the map from a token's one-hot vector to that of its num-th successor."""
    return torch.roll(torch.eye(V, dtype=torch.float64), num, 0)


@pytest.fixture
def target():
    """A model whose features are what it says next: embedding and head are the identity."""
    target = tiny_target("llama", **OPTIONS)
    target.embedding = torch.eye(V, dtype=torch.float64)
    target.head = Linear(SURE * torch.eye(V, dtype=torch.float64))
    return target


def perfect_eagle(target):
    """Version 1 that ignores features: what follows is the successor of the token it is given."""
    head = EagleHead(EagleSpec.of_target(target.arch, 1), V).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.fc.weight[:, :V] = successor()
    return head.requires_grad_(requires_grad=False)


def perfect_medusa():
    heads = MedusaHeads(MedusaSpec(hidden_size=V, num_heads=3), V).double()
    with torch.no_grad():
        for m, one in enumerate(heads.lm_heads):
            one.weight.copy_(SURE * successor(m + 1))
            for parameter in heads.blocks[m].parameters():
                parameter.zero_()
    return heads.requires_grad_(requires_grad=False)


def batch():
    """The cycle: feature i says token i + 1."""
    ids = torch.tensor([CYCLE])
    hidden = torch.eye(V, dtype=torch.float64)[(ids + 1) % V]
    mask = torch.arange(len(CYCLE))[None] >= 3
    return TrainingBatch(ids, mask, torch.tensor([len(CYCLE)]), hidden, None, ("cycle",))


def loss_of(one, data, shift):
    """Mean cross entropy of a pass if its rows predicted `shift` places on."""
    logits = by_position(one.hidden @ one.head.weight.T, shift)
    mask = prediction_mask(data.response_mask, shift, one.mask)
    return float(functional.cross_entropy(logits[mask], data.input_ids[mask]).detach())


def rotary_for(target):
    library = tiny_library_model("llama", **OPTIONS)
    return RotaryTable(target.arch, library.config, torch.float64, target.device)


def test_a_perfect_eagle_has_no_loss_with_its_own_shift_and_much_with_any_other(target):
    ends = FrozenEnds(target.embedding, 1.0, Head(SURE * torch.eye(V, dtype=torch.float64)))
    training = EagleTraining(feature_noise=0.0)
    module = EagleModule(perfect_eagle(target), ends, rotary_for(target), training)
    (one,), auxiliary = module(batch()).passes, module(batch()).auxiliary
    losses = {shift: loss_of(one, batch(), shift) for shift in SHIFTS}
    assert losses.pop(one.shift) < 1e-9
    assert min(losses.values()) > 10
    # Its output at row i is feature i + 1 exactly: the one-hot vector of token i + 2.
    distance, count = auxiliary["regression"]
    assert float(distance) == 0.0
    assert int(count) == 9  # response tokens 3 to 11, the first two rows of the prompt are theirs


def test_a_perfect_medusa_has_no_loss_with_its_own_shifts_and_much_with_any_other():
    passes = MedusaModule(perfect_medusa())(batch()).passes
    for one in passes:
        losses = {shift: loss_of(one, batch(), shift) for shift in SHIFTS}
        assert losses.pop(one.shift) < 1e-9
        assert min(losses.values()) > 10


def accepted_of(target, config, draft):
    """Return accepted and drafted tokens of a decode of the cycle."""
    view = table_view(NEXT, V)
    context = DrafterContext(target, view=view, load_draft=lambda *_: draft)
    drafter = make_drafter(config, context)
    (result,) = generate(view, [CYCLE[:4]], [drafter], max_new_tokens=30, eos_ids=())
    assert list(result.token_ids) == [NEXT[token] for token in [CYCLE[3], *result.token_ids[:-1]]]
    return sum(result.trace.accepted), sum(result.trace.depth)


FACTS = DraftTarget(identity="x", hidden_size=V, vocab_size=V)


def test_what_has_no_loss_in_training_is_always_right_in_decoding(target):
    eagle = LearnedDraft(perfect_eagle(target), None, FACTS)
    accepted, drafted = accepted_of(target, Eagle(model="x", shape="chain", gamma=5), eagle)
    assert accepted == drafted > 20
    medusa = LearnedDraft(perfect_medusa(), None, FACTS)
    # Tap -1 of the scripted target is its logits turned by one: it says one token less.
    for one, m in zip(medusa.module.lm_heads, range(3), strict=True):
        one.weight.copy_(SURE * successor(m + 2))
    accepted, drafted = accepted_of(target, Medusa(model="x", shape="chain", gamma=3), medusa)
    assert accepted == drafted > 15


def test_heads_that_are_off_by_one_are_never_right(target):
    """The trap: head 0 is not the next token, which the target's own head says."""
    medusa = LearnedDraft(perfect_medusa(), None, FACTS)
    for one, m in zip(medusa.module.lm_heads, range(3), strict=True):
        one.weight.copy_(SURE * successor(m + 1))
    accepted, _ = accepted_of(target, Medusa(model="x", shape="chain", gamma=3), medusa)
    assert accepted == 0
