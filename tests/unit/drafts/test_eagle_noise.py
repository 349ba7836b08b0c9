"""Noise on the features of EAGLE-1: whose it is, where there is none, and that it comes again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from specdec_core.drafts.eagle_training import EagleModule, TrainableEagle
from specdec_core.drafts.specs import DraftTarget, Provenance
from specdec_core.errors import SearchCancelledError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.checkpoints import CheckpointFolder
from specdec_core.training.draft import DraftOutput
from specdec_core.training.optimizer import make_optimizer
from specdec_core.training.plan import TrainingPlan
from specdec_core.training.state import Reference, copy_weights
from specdec_core.training.step import StepContext, do_step
from specdec_core.training.trainer import Trainer
from specdec_core.training.validation import validate
from specdec_core.training.workers import Workers, trainable
from tests.learned_drafts import training_module
from tests.tiny_training import (
    HIDDEN,
    VOCAB,
    MemorySource,
    config_of,
    make_batch,
    make_samples,
    make_trainer,
    objective,
)

SAMPLES = make_samples(12)
GRPO = config_of(num_epochs=2, second_epochs=1, loss="kl", second_loss="wtv+0.1grpo")


class Watched(TrainableEagle):
    """Remembers every pass: of which samples, whether with gradient, and what it gave."""

    def __init__(self, module: EagleModule) -> None:
        facts = DraftTarget(identity="x", hidden_size=HIDDEN, vocab_size=VOCAB)
        super().__init__(module, facts, Provenance())
        self.seen: list[tuple[tuple[str, ...], bool, torch.Tensor]] = []

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        output = super().forward(batch)
        hidden = output.passes[0].hidden
        self.seen.append((batch.sample_ids, hidden.requires_grad, hidden.detach().clone()))
        return output


def eagle_module(feature_noise: float = 0.2) -> EagleModule:
    sizes = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_layers": 2}
    heads = {"num_attention_heads": 1, "num_key_value_heads": 1}
    _, module = training_module("llama", "eagle", **sizes, **heads)
    training = replace(module._training, feature_noise=feature_noise)
    return EagleModule(module.head, module.ends, module._rotary, training, None)


def test_noise_is_a_function_of_samples_and_step_and_absent_outside_of_updates() -> None:
    module, plain = eagle_module(), eagle_module(0.0)
    batch = make_batch(make_samples(40), sorted(make_samples(40)))
    with module.noisy(3):
        noise = module._noise(batch, batch.hidden)
        assert isinstance(noise, torch.Tensor)
        assert float(noise.abs().max()) <= 0.2
        assert float(noise.mean().abs()) < 0.01
        assert float(noise.std()) == pytest.approx(0.4 / 12**0.5, rel=0.05)
        renamed = replace(batch, sample_ids=("x", *batch.sample_ids[1:]))
        assert not torch.equal(noise, torch.as_tensor(module._noise(renamed, batch.hidden)))
    with module.noisy(4):
        assert not torch.equal(noise, torch.as_tensor(module._noise(batch, batch.hidden)))
    # Outside there is none, with gradients or without.
    assert torch.equal(module(batch).passes[0].hidden, plain(batch).passes[0].hidden)
    with torch.no_grad():
        assert torch.equal(module(batch).passes[0].hidden, plain(batch).passes[0].hidden)
        for parameter in module.parameters():
            parameter.add_(0.1)
    with module.noisy(3):
        assert torch.equal(noise, torch.as_tensor(module._noise(batch, batch.hidden)))


def test_noise_of_a_sequence_does_not_depend_on_those_beside_it() -> None:
    module, names = eagle_module(), sorted(SAMPLES)
    batch = make_batch(SAMPLES, names)
    with module.noisy(3):
        together = torch.as_tensor(module._noise(batch, batch.hidden))
        for row, name in enumerate(names):
            alone = make_batch(SAMPLES, [name])
            length = int(alone.lengths[0])
            noise = torch.as_tensor(module._noise(alone, alone.hidden))
            assert torch.equal(together[row, :length], noise[0])


def test_draft_and_frozen_reference_see_the_same_noise_in_an_update() -> None:
    draft, source, goal = Watched(eagle_module()), MemorySource(SAMPLES), objective("wtv+0.1grpo")
    parameters = trainable(draft.module)
    reference = Reference(draft, parameters, copy_weights(parameters))
    plan = TrainingPlan.of(GRPO, source.steps_per_epoch)
    optimizer = make_optimizer(parameters, plan.weight_decay)
    context = StepContext(draft, parameters, optimizer, Workers(), plan, source)
    do_step(context, goal, reference, 0)
    frozen, learning = draft.seen[::2], draft.seen[1::2]
    assert len(frozen) == len(learning) > 0
    for (names, has_gradient, theirs), (own_names, is_learning, mine) in zip(
        frozen, learning, strict=True
    ):
        assert names == own_names
        assert (has_gradient, is_learning) == (False, True)
        assert torch.equal(theirs, mine)  # they are of the same weights still
        clean = eagle_module()(make_batch(SAMPLES, names)).passes[0].hidden
        assert not torch.equal(mine, clean)
    # Once they differ, the reference is still the first weights under the noise of the step.
    draft.seen.clear()
    do_step(context, goal, reference, 1)
    first = eagle_module()
    for (names, _, theirs), (_, _, mine) in zip(draft.seen[::2], draft.seen[1::2], strict=True):
        with first.noisy(1):
            assert torch.equal(theirs, first(make_batch(SAMPLES, names)).passes[0].hidden)
        assert not torch.equal(theirs, mine)


def test_validation_sees_no_noise() -> None:
    source, found = MemorySource(SAMPLES), []
    for width in (0.2, 0.0):
        batches = source.validation_batches(rank=0, num_workers=1)
        draft = Watched(eagle_module(width))
        found.append(validate(draft, objective("kl"), batches, Workers()))
    assert found[0] == found[1]


def is_at(trainer: Trainer, step: int) -> bool:
    return trainer.progress.step == step


def test_a_noisy_training_is_resumed_bitwise(tmp_path: Path) -> None:
    source = MemorySource(SAMPLES)
    stop_at = source.steps_per_epoch + 1  # within the second phase
    states = []
    for name, is_stopped in (("whole", False), ("parted", True)):
        folder = tmp_path / name
        trainer = make_trainer(folder, GRPO, source, draft=Watched(eagle_module()))
        if is_stopped:
            with pytest.raises(SearchCancelledError):
                trainer.run(partial(is_at, trainer, stop_at))
            trainer = make_trainer(folder, GRPO, source, draft=Watched(eagle_module()))
            assert trainer.resume() == stop_at
        trainer.run()
        state = CheckpointFolder(folder / "checkpoints", "tiny").load()
        assert state is not None
        assert state.progress.step == 2 * source.steps_per_epoch
        states.append(state)
    whole, parted = states
    assert whole.weights.keys() == parted.weights.keys()
    assert all(torch.equal(whole.weights[name], parted.weights[name]) for name in whole.weights)
    assert all(torch.equal(one, parted.reference[name]) for name, one in whole.reference.items())
