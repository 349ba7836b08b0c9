"""Trials written in a thread of its own: in order, none lost, faults told."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from specdec_core.errors import StoreError
from specdec_core.search.outcome import Failure, Score
from specdec_core.search.study import StudyLedger
from specdec_core.skip import SkipConfig, SkipUnit
from tasks.background_ledger import BackgroundLedger

UNITS = tuple(next(iter(SkipConfig.parse(text).units)) for text in ("1", "2", "3"))


def opened(url: str, folder: Path, units: tuple[SkipUnit, ...] = UNITS) -> BackgroundLedger:
    ledger = StudyLedger.open(
        url, "study", units=units, space_hash="space", lock_path=folder / "lock"
    )
    return BackgroundLedger(ledger)


def test_everything_told_is_written_in_order_before_it_closes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    ledger = opened(url, tmp_path)
    for number, text in enumerate(("1", "2", "3")):
        ledger.start(SkipConfig.parse(text), f"key-{number}", 1)
    ledger.finish("key-0", Score(2.0, 0.5))
    ledger.finish("key-1", Failure("broken"))
    ledger.close()
    trials = optuna.load_study(study_name="study", storage=url).get_trials()
    assert [(trial.user_attrs["skip"], trial.state.name) for trial in trials] == [
        ("1", "COMPLETE"),
        ("2", "FAIL"),
        ("3", "FAIL"),  # still open when it was closed
    ]
    assert trials[0].values == [2.0, 0.5]


def test_what_cannot_be_written_is_raised_by_flush(tmp_path: Path) -> None:
    class Broken(StudyLedger):
        def finish(self, *_given: object, **_more: object) -> None:
            raise StoreError("the disk is full")

    inner = Broken.open(
        f"sqlite:///{tmp_path / 'optuna.db'}",
        "study",
        units=UNITS,
        space_hash="space",
        lock_path=tmp_path / "lock",
    )
    ledger = BackgroundLedger(inner)
    ledger.start(SkipConfig.parse("1"), "key", 1)
    ledger.finish("key", Score(2.0, 0.5))
    with pytest.raises(StoreError, match="the disk is full"):
        ledger.flush()
    ledger.close()
