"""A sweep of learning rate and loss weight: tried, resumed and the best taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from specdec_core.config.losses import parse_loss, split_losses
from specdec_core.errors import ConfigError, SearchCancelledError
from specdec_core.search.storage import try_lock
from specdec_core.training.outcome import TrainingOutcome
from tasks.training_sweep import SweepTrial, TrainingSweep, check_sweep, sweep_training
from tests.tiny_training_data import settings_of, train_config, write_data, write_target

SWEEP = TrainingSweep(
    learning_rates=(1e-4, 1e-2), loss_weights=(0.01, 1.0), num_trials=3, num_epochs=1
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_data(tmp_path / "data", write_target(tmp_path / "target"), settings_of(tmp_path))
    return tmp_path


def test_a_sweep_is_resumed_and_takes_the_best(home: Path) -> None:
    settings, config = settings_of(home), train_config()
    done: list[tuple[SweepTrial, TrainingOutcome | None]] = []

    def keep(trial: SweepTrial, outcome: TrainingOutcome | None) -> None:
        done.append((trial, outcome))

    calls = 0

    def stop_in_the_second_trial() -> bool:
        nonlocal calls
        calls += len(done) == 1
        return calls == 3

    arguments = (config, SWEEP, settings, home / "data", home / "sweep")
    with pytest.raises(SearchCancelledError):
        sweep_training(*arguments, is_inline=True, done=keep, should_stop=stop_in_the_second_trial)
    assert len(done) == 1
    folders = {path.name for path in (home / "sweep").iterdir() if path.is_dir()}
    assert len(folders) == 2
    outcome = sweep_training(*arguments, is_inline=True, done=keep)
    assert [trial for trial, _ in done] == list(outcome.trials)
    assert len(outcome.trials) == 3
    # The interrupted training went on: three trials, three folders.
    assert folders < {path.name for path in (home / "sweep").iterdir() if path.is_dir()}
    assert {path.name for path in (home / "sweep").iterdir() if path.is_dir()} == {
        trial.key[:16] for trial in outcome.trials
    }
    for trial, trained in done:
        assert trained is not None
        assert trial.accepted_tokens == trained.best.greedy.accepted_tokens
        assert trained.num_steps == 5
        assert 1e-4 <= trial.learning_rate <= 1e-2
        kl, eal = parse_loss(trial.loss)
        assert kl.weight == 1.0
        assert 0.01 <= eal.weight <= 1.0
    assert outcome.best.accepted_tokens == max(t.accepted_tokens or 0.0 for t in outcome.trials)
    assert outcome.config.learning_rate == outcome.best.learning_rate
    assert outcome.config.loss == outcome.best.loss
    assert outcome.config.num_epochs == config.num_epochs
    again = sweep_training(*arguments, is_inline=True, done=keep)
    assert again == outcome
    assert len(done) == 3


def test_another_process_with_the_same_sweep_is_waited_for(home: Path) -> None:
    lock = try_lock(home / "sweep" / ".lock")
    assert lock is not None
    lines: list[str] = []

    def end_the_other(line: str) -> None:
        lines.append(line)
        if "another process" in line:
            lock.close()

    outcome = sweep_training(
        train_config(),
        SWEEP.model_copy(update={"loss_weights": None, "num_trials": 1}),
        settings_of(home),
        home / "data",
        home / "sweep",
        is_inline=True,
        log=end_the_other,
    )
    assert len(outcome.trials) == 1
    waiting = f"another process runs the sweep in {home / 'sweep'}: waiting for it"
    assert lines.count(waiting) == 1


def test_the_weight_of_a_single_loss_is_not_varied(home: Path) -> None:
    with pytest.raises(ConfigError, match="'wtv' is one loss"):
        sweep_training(
            train_config(loss="wtv"), SWEEP, settings_of(home), home / "data", home / "sweep"
        )


def test_the_weight_of_a_second_phase_is_varied_before_that_of_the_first(home: Path) -> None:
    asked = {"loss": "kl+0.1eal", "second_loss": "wtv+0.1grpo", "second_epochs": 1}
    sweep = SWEEP.model_copy(update={"num_trials": 1, "num_epochs": 2})
    outcome = sweep_training(
        train_config(**asked),
        sweep,
        settings_of(home),
        home / "data",
        home / "sweep",
        is_inline=True,
    )
    first, second = split_losses(outcome.best.loss)
    assert first == "kl+0.1eal"
    wtv, grpo = parse_loss(second or "")
    assert (wtv.weight, grpo.name) == (1.0, "grpo")
    assert 0.01 <= grpo.weight <= 1.0
    assert grpo.weight != 0.1
    assert (outcome.config.loss, outcome.config.second_loss) == (first, second)


def test_the_weight_of_the_first_phase_is_varied_where_the_second_has_one_loss(home: Path) -> None:
    asked = {"loss": "kl+0.1eal", "second_loss": "wtv", "second_epochs": 1}
    sweep = SWEEP.model_copy(update={"loss_weights": (0.01, 5000.0), "num_epochs": 2})
    with pytest.raises(ConfigError, match=r"'5000eal' in 'kl\+5000eal' has weight 5000"):
        check_sweep(train_config(**asked), sweep)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (1e-2, 1e-3)])
def test_a_range_rises_above_zero(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="give two rising numbers above 0"):
        TrainingSweep(learning_rates=bounds, num_trials=1)
