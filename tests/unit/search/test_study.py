"""The Optuna ledger: one trial per configuration, resumable, one writer."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from specdec_core.errors import StoreError
from specdec_core.search.outcome import Failure, Loss, Score
from specdec_core.search.space import candidates, space_hash
from specdec_core.search.study import StudyLedger, study_name
from specdec_core.skip import SkipConfig, SkipUnit

NAME = study_name("translation", "pypi:gemma3-270m", "token-recycling:num_nodes=12", "a" * 40)


def open_ledger(
    folder: Path,
    units: tuple[SkipUnit, ...] = candidates("halves", 4, True),
) -> StudyLedger:
    return StudyLedger.open(
        f"sqlite:///{folder}/state/optuna.db",
        NAME,
        units=units,
        space_hash=space_hash(units),
        lock_path=folder / "locks" / "study.lock",
        attributes={"domain": "translation"},
    )


def trials(folder: Path, name: str = NAME) -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(
        study_name=name, storage=f"sqlite:///{folder}/state/optuna.db"
    ).get_trials()


def test_study_name_has_no_characters_that_need_quoting() -> None:
    assert NAME == "tss/translation/pypi-gemma3-270m/token-recycling-num_nodes=12/aaaaaaaaaaaa"


def test_one_complete_trial_per_configuration_with_unit_parameters(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    for skip, key, level in (("", "k0", 0), ("a1", "k1", 1), ("1,m2", "k2", 2)):
        ledger.start(SkipConfig.parse(skip), key, level)
        ledger.start(SkipConfig.parse(skip), key, level)
        ledger.finish(key, Score(2.0 + level, 0.5), seconds=1.5)
        ledger.start(SkipConfig.parse(skip), key, level)
    ledger.close()
    found = trials(tmp_path)
    assert [t.state.name for t in found] == ["COMPLETE"] * 3
    assert [t.user_attrs["key"] for t in found] == ["k0", "k1", "k2"]
    assert found[2].params == {"a1": 1, "m1": 1, "a2": 0, "m2": 1}
    assert found[2].values == [4.0, 0.5]
    assert found[2].user_attrs["skip"] == "1,m2"
    assert found[2].user_attrs["level"] == 2
    assert found[2].user_attrs["seconds"] == 1.5


def test_a_loss_is_a_pruned_trial_with_its_nats_recorded_once(tmp_path: Path) -> None:
    for _ in range(2):
        ledger = open_ledger(tmp_path)
        ledger.add_loss(SkipConfig.parse("a1"), "l1", 1, Loss(2.25), 0.5)
        ledger.add_loss(SkipConfig.parse("a1"), "l1", 1, Loss(2.25), 0.5)
        ledger.close()
    (trial,) = trials(tmp_path)
    assert (trial.state.name, trial.user_attrs["loss"]) == ("PRUNED", 2.25)
    assert (trial.user_attrs["skip"], trial.user_attrs["level"]) == ("a1", 1)
    assert trial.params == {"a1": 1, "m1": 0, "a2": 0, "m2": 0}


def test_a_loss_that_failed_is_a_failed_trial(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.add_loss(SkipConfig.parse("a1"), "l1", 1, Failure("worker died"))
    ledger.close()
    (trial,) = trials(tmp_path)
    assert (trial.state.name, trial.user_attrs["reason"]) == ("FAIL", "worker died")


def test_a_failed_configuration_is_a_failed_trial_with_its_reason(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.start(SkipConfig.parse("a1"), "k1", 1)
    ledger.finish("k1", Failure("worker died"))
    ledger.close()
    (trial,) = trials(tmp_path)
    assert trial.state.name == "FAIL"
    assert trial.user_attrs["reason"] == "worker died"


def test_resume_skips_complete_keys_and_fails_orphans(tmp_path: Path) -> None:
    first = open_ledger(tmp_path)
    first.start(SkipConfig.parse("a1"), "k1", 1)
    first.finish("k1", Score(2.0, 0.5))
    first.start(SkipConfig.parse("a2"), "k2", 1)
    study = optuna.load_study(study_name=NAME, storage=f"sqlite:///{tmp_path}/state/optuna.db")
    study.enqueue_trial({"a1": 0}, user_attrs={"key": "k3"})
    assert first._lock is not None
    first._lock.close()  # what the system does when the process dies

    second = open_ledger(tmp_path)
    assert second.is_owner
    for key, skip in (("k1", "a1"), ("k2", "a2"), ("k3", "m2")):
        second.start(SkipConfig.parse(skip), key, 1)
        second.finish(key, Score(2.0, 0.5))
    second.close()
    states = [(t.user_attrs["key"], t.state.name) for t in trials(tmp_path)]
    assert states.count(("k1", "COMPLETE")) == 1
    assert states.count(("k2", "FAIL")) == 1
    assert states.count(("k2", "COMPLETE")) == 1
    assert states.count(("k3", "COMPLETE")) == 1
    assert not any(state in {"RUNNING", "WAITING"} for _, state in states)


def test_closing_fails_what_is_open(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    ledger.start(SkipConfig.parse("a1"), "k1", 1)
    ledger.close()
    assert trials(tmp_path)[0].state.name == "FAIL"


def test_a_second_search_of_the_same_study_records_nothing(tmp_path: Path) -> None:
    first, second = open_ledger(tmp_path), open_ledger(tmp_path)
    assert first.is_owner
    assert not second.is_owner
    second.start(SkipConfig.parse("a1"), "k1", 1)
    second.finish("k1", Score(2.0, 0.5))
    second.close()
    first.close()
    assert trials(tmp_path) == []
    third = open_ledger(tmp_path)
    assert third.is_owner
    third.close()


def test_another_space_is_another_study(tmp_path: Path) -> None:
    first = open_ledger(tmp_path)
    first.start(SkipConfig.parse("a1"), "k1", 1)
    first.finish("k1", Score(2.0, 0.5))
    first.close()
    wider = open_ledger(tmp_path, units=candidates("halves", 5, True))
    assert wider.name != NAME
    assert wider.name.startswith(NAME)
    wider.start(SkipConfig.parse("a1"), "k1", 1)
    wider.finish("k1", Score(2.0, 0.5))
    wider.close()
    assert len(trials(tmp_path)) == len(trials(tmp_path, wider.name)) == 1


def test_an_unusable_storage_is_a_store_error_of_one_line_that_names_the_setting(
    tmp_path: Path,
) -> None:
    with pytest.raises(StoreError, match=r"^(?!.*\n).*SPECDEC_OPTUNA_URL"):
        StudyLedger.open(
            "postgresql+nodriver://user:secret@nowhere/optuna",
            NAME,
            units=candidates("block", 4, True),
            space_hash="x",
            lock_path=tmp_path / "lock",
        )
