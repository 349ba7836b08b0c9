"""Training loop: resuming, accumulation, phases, refusals and what is kept."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from specdec_core.errors import ConfigError, EvaluationFailedError, SearchCancelledError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.checkpoints import CheckpointFolder, TrainingState
from specdec_core.training.draft import DraftOutput, DraftPass, Head
from specdec_core.training.objective import Objective
from specdec_core.training.plan import TrainingPlan
from specdec_core.training.state import Named, copy_weights
from specdec_core.training.trainer import Trainer, TrainingParts
from specdec_core.training.workers import Workers
from tests.tiny_training import (
    Log,
    MemorySource,
    Sample,
    config_of,
    make_samples,
    make_trainer,
    objective,
    tiny_draft,
)

ROOT = Path(__file__).parents[3]
# 16 training samples and 4 per step: 4 steps an epoch.
SAMPLES = make_samples(20)
FIVE_EPOCHS = config_of(num_epochs=5, loss="kl+0.1eal")
# The rate is one at which the second phase leaves its reference.
TWO_PHASES = config_of(
    num_epochs=5, second_epochs=2, loss="kl", second_loss="wtv+0.1grpo", learning_rate=0.1
)


def last_state(folder: Path) -> TrainingState:
    state = CheckpointFolder(folder / "checkpoints", "tiny").load()
    assert state is not None
    return state


def assert_bitwise_equal(one: TrainingState, other: TrainingState) -> None:
    assert one.progress.model_copy(update={"seconds": 0.0}) == other.progress.model_copy(
        update={"seconds": 0.0}
    )
    for mine, theirs in ((one.weights, other.weights), (one.reference, other.reference)):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert one.moments.keys() == other.moments.keys()
    for name, moments in one.moments.items():
        assert all(torch.equal(moments[key], other.moments[name][key]) for key in moments)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Log]:
    folder, log = tmp_path_factory.mktemp("whole"), Log()
    make_trainer(folder, FIVE_EPOCHS, MemorySource(SAMPLES), log=log).run()
    return folder, log


def test_a_training_killed_and_resumed_is_bitwise_the_uninterrupted_one(
    tmp_path: Path, uninterrupted: tuple[Path, Log]
) -> None:
    script = f"""
import os, signal, torch
from pathlib import Path
from tests.tiny_training import MemorySource, make_trainer
from tests.unit.training.test_trainer import FIVE_EPOCHS, SAMPLES
torch.set_num_threads({torch.get_num_threads()})
def die(event):
    if event.kind == "step" and event.step == 13:
        os.kill(os.getpid(), signal.SIGKILL)
make_trainer(Path({str(tmp_path)!r}), FIVE_EPOCHS, MemorySource(SAMPLES), log=die).run()
"""
    died = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert died.returncode == -signal.SIGKILL
    assert last_state(tmp_path).progress.step == 10
    log = Log()
    trainer = make_trainer(tmp_path, FIVE_EPOCHS, MemorySource(SAMPLES), log=log)
    assert trainer.resume() == 10
    trainer.run()
    folder, whole = uninterrupted
    assert_bitwise_equal(last_state(tmp_path), last_state(folder))
    assert [event.loss for event in log.steps] == [event.loss for event in whole.steps[10:]]


def test_a_stopped_training_goes_on_where_it_was(
    tmp_path: Path, uninterrupted: tuple[Path, Log]
) -> None:
    log = Log()
    trainer = make_trainer(tmp_path, FIVE_EPOCHS, MemorySource(SAMPLES), log=log)
    with pytest.raises(SearchCancelledError, match="after 7 of 20 steps"):
        trainer.run(lambda: len(log.steps) == 7)
    assert last_state(tmp_path).progress.step == 7
    again = make_trainer(tmp_path, FIVE_EPOCHS, MemorySource(SAMPLES))
    assert again.resume() == 7
    again.run()
    assert_bitwise_equal(last_state(tmp_path), last_state(uninterrupted[0]))


def test_rates_losses_and_validations_of_a_training(uninterrupted: tuple[Path, Log]) -> None:
    log = uninterrupted[1]
    assert [event.step for event in log.steps] == list(range(1, 21))
    assert max(event.learning_rate for event in log.steps) == FIVE_EPOCHS.learning_rate
    assert [event.epoch for event in log.steps] == [step // 4 for step in range(20)]
    assert [event.step for event in log.validations] == [0, 5, 10, 15, 20]
    assert log.steps[-1].loss < log.steps[0].loss
    for event in log.steps:
        terms = event.terms
        assert event.loss == pytest.approx(terms["kl"] + 0.1 * terms["eal"])
    assert sum(event.num_tokens for event in log.steps[:4]) == sum(
        len(sample.token_ids) for name, sample in SAMPLES.items() if name >= "s004"
    )


@pytest.mark.parametrize("loss", ["kl+0.1eal+ce", "lk-lambda", "kl+0.1grpo"])
def test_accumulating_micro_batches_sums_before_dividing(loss: str, tmp_path: Path) -> None:
    """Micro-batches of unequal numbers of tokens must not be weighted alike.

    The rate is one at which the draft soon accepts other tokens than its start.
    """
    config, states, log = config_of(num_epochs=2, loss=loss, learning_rate=0.1), [], Log()
    for name, limit in (("many", 20), ("one", 1000)):
        source = MemorySource(SAMPLES, micro_batch_tokens=limit)
        sizes = len(source.micro_batches(0, 0, rank=0, num_workers=1))
        assert (sizes > 2) == (name == "many")
        make_trainer(tmp_path / name, config, source, log=log).run()
        states.append(last_state(tmp_path / name))
    assert all(any(event.terms[name] for event in log.steps) for name in log.steps[0].terms)
    for name, weight in states[0].weights.items():
        torch.testing.assert_close(weight, states[1].weights[name], rtol=0, atol=1e-9)


def test_the_second_phase_starts_from_its_reference(tmp_path: Path) -> None:
    log = Log()
    make_trainer(tmp_path / "whole", TWO_PHASES, MemorySource(SAMPLES), log=log).run()
    assert [event.phase for event in log.steps] == [1] * 12 + [2] * 8
    # Draft and reference are the same in its first step: no reward, no advantage.
    assert log.steps[12].terms["grpo"] == 0.0
    assert any(event.terms["grpo"] != 0.0 for event in log.steps[13:])
    assert {event.step for event in log.validations} >= {12}
    stopped, again = tmp_path / "stopped", Log()
    trainer = make_trainer(stopped, TWO_PHASES, MemorySource(SAMPLES), log=again)
    with pytest.raises(SearchCancelledError):
        trainer.run(lambda: len(again.steps) == 12)
    before = last_state(stopped)
    assert not before.reference
    trainer = make_trainer(stopped, TWO_PHASES, MemorySource(SAMPLES), log=again)
    trainer.resume()
    with pytest.raises(SearchCancelledError):
        trainer.run(lambda: len(again.steps) == 14)
    reference = last_state(stopped).reference
    assert all(torch.equal(reference[name], before.weights[name]) for name in reference)
    trainer = make_trainer(stopped, TWO_PHASES, MemorySource(SAMPLES))
    trainer.resume()
    trainer.run()
    assert_bitwise_equal(last_state(stopped), last_state(tmp_path / "whole"))


def test_a_first_phase_may_compare_with_its_own_start(tmp_path: Path) -> None:
    """A draft that is trained already needs no other phase before grpo."""
    config, log = config_of(num_epochs=2, loss="wtv+0.1grpo"), Log()
    draft = tiny_draft(tmp_path)
    start = {name: p.detach().clone() for name, p in draft.module.named_parameters()}
    source = MemorySource(SAMPLES)
    make_trainer(tmp_path / "whole", config, source, draft=draft, log=log).run()
    assert log.steps[0].terms["grpo"] == 0.0
    assert any(event.terms["grpo"] != 0.0 for event in log.steps)
    reference = last_state(tmp_path / "whole").reference
    assert all(torch.equal(weights, start[name]) for name, weights in reference.items())
    again = Log()
    trainer = make_trainer(tmp_path / "stopped", config, source, log=again)
    with pytest.raises(SearchCancelledError):
        trainer.run(lambda: len(again.steps) == 3)
    trainer = make_trainer(tmp_path / "stopped", config, source)
    assert trainer.resume() == 3
    trainer.run()
    assert_bitwise_equal(last_state(tmp_path / "stopped"), last_state(tmp_path / "whole"))


def test_a_reference_is_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []

    def copy(parameters: Named) -> dict[str, Tensor]:
        copies.append(copy_weights(parameters))
        return copies[-1]

    monkeypatch.setattr("specdec_core.training.trainer.copy_weights", copy)
    config = config_of(num_epochs=1, loss="kl+0.1grpo")  # 4 steps: stored before and after them
    make_trainer(tmp_path, config, MemorySource(SAMPLES)).run()
    assert len(copies) == 1 + 2


def test_a_second_phase_has_its_own_reference_where_the_first_has_one_too(tmp_path: Path) -> None:
    config = config_of(num_epochs=2, second_epochs=1, loss="kl+0.1grpo", second_loss="wtv+0.1grpo")
    log = Log()
    make_trainer(tmp_path, config, MemorySource(SAMPLES), log=log).run()
    assert log.steps[3].terms["grpo"] != 0.0
    assert log.steps[4].terms["grpo"] == 0.0


def test_responses_shorter_than_a_window_are_refused_before_the_first_step(tmp_path: Path) -> None:
    log = Log()
    trainer = make_trainer(tmp_path, config_of(gamma=64), MemorySource(SAMPLES), log=log)
    with pytest.raises(ConfigError, match=r"none of the 4 held-out .* has 64 tokens in a row"):
        trainer.run()
    assert not log.steps


def test_windows_alone_leave_the_draft_as_it_is_where_there_are_none(tmp_path: Path) -> None:
    """Positions without a window are nothing to learn from for a loss of windows."""
    samples = {
        name: replace(sample, num_prompt=len(sample.token_ids) - 1 if name >= "s004" else 2)
        for name, sample in SAMPLES.items()
    }
    draft = tiny_draft(tmp_path)
    before = {name: p.detach().clone() for name, p in draft.module.named_parameters()}
    trainer = make_trainer(
        tmp_path, config_of(num_epochs=1, loss="wtv"), MemorySource(samples), draft=draft
    )
    # Momentum of earlier steps must not move it either.
    for parameter in draft.module.parameters():
        trainer._optimizer.state[parameter] = {
            "step": torch.tensor(1.0),
            "exp_avg": torch.ones_like(parameter),
            "exp_avg_sq": torch.ones_like(parameter),
        }
    trainer.run()
    assert all(torch.equal(p, before[name]) for name, p in draft.module.named_parameters())


def test_a_best_checkpoint_that_is_gone_is_said_before_training_goes_on(tmp_path: Path) -> None:
    make_trainer(tmp_path, FIVE_EPOCHS, MemorySource(SAMPLES)).run()
    best = last_state(tmp_path).progress.best_step
    assert best is not None
    newest = last_state(tmp_path).progress.step
    folder = CheckpointFolder(tmp_path / "checkpoints", "tiny")
    if best == newest:  # make an earlier one the best
        state = last_state(tmp_path)
        state = replace(state, progress=state.progress.model_copy(update={"best_step": 1}))
        shutil.rmtree(tmp_path / "checkpoints" / f"step-{newest:08d}")
        folder.save(state)
        best = 1
    shutil.rmtree(tmp_path / "checkpoints" / f"step-{best:08d}", ignore_errors=True)
    trainer = make_trainer(tmp_path, FIVE_EPOCHS, MemorySource(SAMPLES))
    with pytest.raises(ConfigError, match=f"checkpoint of step {best}, the best .* is not in"):
        trainer.resume()


def test_a_loss_that_is_no_number_ends_it_with_step_and_samples(tmp_path: Path) -> None:
    bad = dict(SAMPLES)
    hidden = bad["s009"].hidden.clone()
    hidden[6] = float("nan")
    bad["s009"] = replace(bad["s009"], hidden=hidden)
    source, log = MemorySource(bad), Log()
    step = next(s for s in range(4) if "s009" in source.plan.step_samples(0, s))
    (shared,) = [part for part in source.plan.micro_batches(0, step) if "s009" in part]
    trainer = make_trainer(tmp_path, config_of(), source, log=log)
    with pytest.raises(EvaluationFailedError, match=f"loss of step {step + 1} is nan") as caught:
        trainer.run()
    assert all(name in str(caught.value) for name in shared)
    others = set(source.plan.step_samples(0, step)) - set(shared)
    assert not any(name in str(caught.value) for name in others)
    assert len(log.steps) == step
    assert all(bool(w.isfinite().all()) for w in last_state(tmp_path).weights.values())


def test_micro_batches_without_a_response_are_skipped_and_counted(tmp_path: Path) -> None:
    masked = {
        name: replace(sample, num_prompt=len(sample.token_ids))
        for name, sample in make_samples(8, seed=1).items()
    }
    log = Log()
    samples = {**make_samples(20), **{f"t{name}": one for name, one in masked.items()}}
    source = MemorySource(samples, micro_batch_tokens=20)
    num_skipped = sum(
        all(name.startswith("t") for name in part)
        for step in range(source.steps_per_epoch)
        for part in source.plan.micro_batches(0, step)
    )
    assert num_skipped > 0
    make_trainer(tmp_path, config_of(num_epochs=1), source, log=log).run()
    assert log.steps[-1].num_skipped == num_skipped


def test_a_step_without_any_response_leaves_the_draft_as_it_is(tmp_path: Path) -> None:
    samples = {
        name: replace(sample, num_prompt=len(sample.token_ids) if name >= "s004" else 2)
        for name, sample in SAMPLES.items()
    }
    log, draft = Log(), tiny_draft(tmp_path)
    before = {name: p.detach().clone() for name, p in draft.module.named_parameters()}
    make_trainer(
        tmp_path, config_of(num_epochs=1), MemorySource(samples), draft=draft, log=log
    ).run()
    assert all(event.loss == 0.0 for event in log.steps)
    assert all(torch.equal(p, before[name]) for name, p in draft.module.named_parameters())


class BigramDraft:
    """Logits are a table by the token before."""

    taps: tuple[int, ...] = ()

    def __init__(self, table: Tensor) -> None:
        self.module: nn.Module = nn.Module()
        self.module.register_parameter("table", nn.Parameter(table))

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        table = self.module.get_parameter("table")
        return DraftOutput((DraftPass(table[batch.input_ids], Head(torch.eye(3).double())),), {})

    def save(self, folder: Path) -> None:
        raise NotImplementedError


def test_the_best_draft_is_that_of_acceptance_where_the_loss_disagrees(tmp_path: Path) -> None:
    """Training responses rank token 1 first by a little, held-out ones token 0.

    The start ranks token 0 first but is nearly sure that the rest of it is token 2, which costs
    much divergence; what training makes of it has almost the target's distribution and the wrong
    first token.
    """

    def sample(p: tuple[float, float, float]) -> Sample:
        rows = torch.tensor(p, dtype=torch.float64).log().expand(9, 3)
        return Sample(torch.zeros(9, dtype=torch.int64), 1, rows)

    train, held_out = sample((0.40, 0.45, 0.15)), sample((0.45, 0.40, 0.15))
    samples = {f"s{i:03d}": held_out if i < 4 else train for i in range(12)}

    table = torch.tensor([[0.51, 0.0001, 0.4899]], dtype=torch.float64).log().repeat(3, 1)
    draft, log = BigramDraft(table), Log()
    config = config_of(num_epochs=30, learning_rate=0.3, validate_every=10)
    source = MemorySource(samples)
    trainer = Trainer(
        TrainingParts(
            plan=TrainingPlan.of(config, source.steps_per_epoch),
            draft=draft,
            objectives=(Objective(objective().config, Head(torch.eye(3, dtype=torch.float64))),),
            source=source,
            checkpoints=CheckpointFolder(tmp_path / "checkpoints", "tiny"),
            workers=Workers(),
            record=log,
        )
    )
    progress = trainer.run()
    first, last = log.validations[0], log.validations[-1]
    assert last.loss < 0.1 < first.loss
    assert first.greedy.accepted_tokens == 3.0
    assert last.greedy.accepted_tokens == 0.0
    assert progress.best_step == 0
    assert torch.equal(draft.module.get_parameter("table").detach(), table)
    # By the overlap of distributions the trained one is better: sampling would choose it.
    assert last.sampling.accepted_tokens > first.sampling.accepted_tokens
