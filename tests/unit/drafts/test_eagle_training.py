"""Training passes of EAGLE heads: whose gradients, which distances; new heads."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional

from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.config.training import EagleDraft, MedusaDraft, parse_draft
from specdec_core.decoding import DrafterContext, generate, make_drafter
from specdec_core.drafts.building import new_trainable
from specdec_core.drafts.eagle_training import EagleModule
from specdec_core.drafts.loading import DraftShelf
from specdec_core.drafts.specs import EagleSpec, Provenance
from specdec_core.drafts.trainable import FrozenEnds
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import tiny_target, write_tiny_checkpoint
from specdec_core.training.alignment import by_position, prediction_mask
from specdec_core.training.draft import Head
from specdec_core.training.losses.counts import PassRows
from tests.doubles import slow_greedy
from tests.learned_drafts import batch_of, training_module

SEQUENCES = ([3, 1, 2, 6, 1, 0, 4, 2, 5, 3], [6, 0, 5, 5, 4, 2, 6])
SIZES = {"vocab_size": 7, "num_layers": 4}


def loss_of(module, batch):
    """Cross entropy of all passes, and what is added to it."""
    output = module(batch)
    total = torch.zeros((), dtype=torch.float64)
    for one in output.passes:
        ids = batch.input_ids
        if one.head.target_ids is not None:
            known = one.head.target_ids.tolist()
            rows = {token: row for row, token in enumerate(known)}
            ids = torch.tensor([[rows.get(int(token), -1) for token in row] for row in ids])
        logits = by_position(one.hidden @ one.head.weight.T, one.shift)
        mask = prediction_mask(batch.response_mask, one.shift, one.mask) & (ids >= 0)
        total = total + functional.cross_entropy(logits[mask], ids[mask])
    for added, count in output.auxiliary.values():
        total = total + added / count
    return total


@pytest.mark.parametrize("kind", ["eagle", "eagle3", "eagle3-narrow"])
@pytest.mark.parametrize("family", ["gemma3", "qwen2"])
def test_gradients_reach_every_weight_of_the_head_and_nothing_else(family, kind):
    target, module = training_module(family, kind, **SIZES)
    spec = module.head.spec
    batch = batch_of(target, SEQUENCES, spec.taps if spec.version == 3 else ())
    with torch.inference_mode():
        assert loss_of(module, batch) > 0  # what it leaves does not stand in the way
    loss_of(module, batch).backward()
    for row, one in zip(module.rows(batch), module(batch).passes, strict=True):
        own = PassRows.of(one)
        assert (row.shift, row.vocab_size) == (own.shift, own.vocab_size)
        assert torch.equal(row.mask, own.mask)
    named = dict(module.named_parameters())
    assert all(name.startswith("head.") for name in named)
    for name, parameter in named.items():
        # All keys shifted alike shift all scores alike, rotation apart.
        assert float(parameter.grad.abs().sum()) > 0, name
    assert not any(buffer.requires_grad for buffer in module.buffers())
    assert set(module.state_dict()) == set(named)


def test_distances_are_those_to_the_features_of_the_next_token():
    target, module = training_module("llama", "eagle", **SIZES)
    batch = batch_of(target, SEQUENCES, (), num_prompt=3)
    output = module(batch)
    states, expected, count = output.passes[0].hidden, 0.0, 0
    for row, sequence in enumerate(SEQUENCES):
        for predicted in range(3, len(sequence)):  # of the response
            gap = (states[row, predicted - 2] - batch.hidden[row, predicted - 1]).abs()
            expected += float(torch.where(gap < 1, gap**2 / 2, gap - 0.5).mean().detach())
            count += 1
    found, number = output.auxiliary["regression"]
    # Distances are taken in float32.
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)
    assert int(number) == count


def with_training(module, **changes):
    training = dataclasses.replace(module._training, **changes)
    return EagleModule(module.head, module.ends, module._rotary, training, module._vocabulary)


def test_the_distance_has_its_weight_or_is_not_there():
    target, module = training_module("llama", "eagle", **SIZES)
    batch = batch_of(target, SEQUENCES, ())
    once = module(batch).auxiliary["regression"][0]
    twice = with_training(module, regression_weight=2.0)(batch).auxiliary["regression"][0]
    assert float(twice.detach()) == pytest.approx(2 * float(once.detach()))
    assert with_training(module, regression_weight=0.0)(batch).auxiliary == {}


def test_version_3_learns_a_language_to_every_depth_it_is_unrolled():
    """Every token has one successor; after some steps all passes are sure of it."""
    target, module = training_module("llama", "eagle3", num_steps=3, **SIZES)
    cycles = [[(start + place) % 7 for place in range(12)] for start in range(7)]
    batch = batch_of(target, cycles, module.head.spec.taps)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    before = float(loss_of(module, batch).detach())
    for _ in range(80):
        optimizer.zero_grad()
        loss = loss_of(module, batch)
        loss.backward()
        optimizer.step()
    assert before > 3  # three passes, each near the logarithm of 7
    assert float(loss.detach()) < 0.1
    for one in module(batch).passes:
        for wrong in {1, 2, 3, 4, 5} - {one.shift}:
            logits = by_position(one.hidden @ one.head.weight.T, wrong)
            mask = prediction_mask(batch.response_mask, wrong, one.mask)
            labels = batch.input_ids[mask]
            assert float(functional.cross_entropy(logits[mask], labels).detach()) > 2


@pytest.mark.parametrize("kind", ["eagle", "eagle3"])
def test_autocast_changes_little_and_gradients_stay_in_float32(kind):
    target, module = training_module("gemma3", kind, dtype="float32", **SIZES)
    batch = batch_of(target, SEQUENCES, module.head.spec.taps if kind == "eagle3" else ())
    exact = loss_of(module, batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough = loss_of(module, batch)
    rough.backward()
    assert float(rough.detach()) == pytest.approx(float(exact.detach()), rel=0.1)
    for parameter in module.parameters():
        assert parameter.grad.dtype is torch.float32
        assert bool(parameter.grad.isfinite().all())


def test_version_3_without_its_states_says_how_to_get_them():
    target, module = training_module("llama", "eagle3", **SIZES)
    with pytest.raises(ConfigError, match=r"reads hidden states \[1, 2, 3\] .*hidden=taps"):
        module(batch_of(target, SEQUENCES, ()))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    folder = write_tiny_checkpoint(root / "model", "qwen3")
    return resolve_model(f"path:{folder}", root / "cache")


VOCABULARY = DraftVocabulary(range(0, 257, 2))
CASES = {
    "eagle": (EagleDraft(), None, Eagle),
    "eagle3": (EagleDraft(version=3), None, Eagle),
    "eagle3-narrow": (EagleDraft(version=3, vocab_size=129), VOCABULARY, Eagle),
    "medusa": (MedusaDraft(), None, Medusa),
    "medusa-narrow": (MedusaDraft(num_heads=3, num_blocks=2), VOCABULARY, Medusa),
}


@pytest.mark.parametrize("name", CASES)
def test_a_new_drafter_is_saved_and_drafts_in_the_targets_loop(name, model, tmp_path):
    shape, vocabulary, options = CASES[name]
    note = Provenance(data_hash="abc", training={"loss": "kl"})
    draft = new_trainable(shape, model, seed=3, vocabulary=vocabulary, provenance=note)
    draft.save(tmp_path / "draft")
    target = load_target(model, dtype="float32", device="cpu")
    view, config = target.view(), options(model=str(tmp_path / "draft"))
    context = DrafterContext(target, view=view, load_draft=DraftShelf(target).load)
    prompt = [5, 17, 201, 3]

    def logits_after(tokens):
        return view.prefill([tokens], view.new_cache(1, len(tokens)))[0].tolist()

    (result,) = generate(
        view, [prompt], [make_drafter(config, context)], max_new_tokens=8, eos_ids=()
    )
    assert list(result.token_ids) == slow_greedy(logits_after, prompt, 8)
    assert sum(result.trace.drafted) > 0


def test_heads_start_as_the_targets_rows_and_the_rest_depends_on_the_seed(model):
    first, again, other = (
        new_trainable(EagleDraft(version=3, vocab_size=129), model, seed=s, vocabulary=VOCABULARY)
        for s in (1, 1, 2)
    )
    head = load_target(model, dtype="float32", device="cpu")
    weights = [dict(one.module.head.named_parameters()) for one in (first, again, other)]
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name])
        is_drawn = tensor.ndim == 2 and name != "lm_head.weight"
        assert torch.equal(tensor, weights[2][name]) != is_drawn, name
    everything = torch.eye(head.arch.hidden_size)
    rows = head.head(everything).T[::2]  # the head's weight, through its own product
    torch.testing.assert_close(weights[0]["lm_head.weight"].detach(), rows)


def test_options_that_do_not_fit_are_refused(model):
    with pytest.raises(ConfigError, match="asks for a vocabulary of 64 ids, but None are given"):
        new_trainable(EagleDraft(version=3, vocab_size=64), model)
    with pytest.raises(ConfigError, match="asks for a vocabulary of None ids, but 129 are given"):
        new_trainable(EagleDraft(), model, vocabulary=VOCABULARY)


def test_version_1_has_no_vocabulary_of_its_own():
    with pytest.raises(ConfigError, match=r"vocab_size=129 was given, but version 1 .*version=3"):
        parse_draft("eagle:vocab_size=129")
    assert parse_draft("eagle:version=3,vocab_size=129") == EagleDraft(version=3, vocab_size=129)
    arch = tiny_target("llama").arch
    with pytest.raises(ConfigError, match=r"129 ids were given for EAGLE-1, .*use version 3"):
        EagleSpec.of_target(arch, 1, 129)
    assert EagleSpec.of_target(arch, 1).draft_vocab_size is None


def test_the_bias_of_the_targets_head_is_kept_but_not_stored():
    _, module = training_module("llama", "eagle", **SIZES)
    weight, bias = module.ends.head.weight, torch.arange(7.0, dtype=torch.float64)
    ends = FrozenEnds(weight, 1.0, Head(weight, bias)).float()
    assert torch.equal(ends.head.bias, bias.float())
    assert dict(ends.named_parameters()) == ends.state_dict() == {}
    assert module.ends.head.bias is None
