"""What a search does with its answer: validated and active, or validated only."""

from __future__ import annotations

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import ProfileNotFoundError
from tasks.pool import pool_factory
from tasks.report import SearchReport
from tasks.search import run_search
from tests.integration import store_examples
from tests.table_evaluator import Control, TableEvaluator, config, workload


def search(settings: Settings, store: Store, control: Control, **changes: object) -> SearchReport:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    return run_search(config(**changes), settings, store, start, prepare_workload=workload)


def moves(store: Store, profile_id: int) -> list[tuple[str, str | None]]:
    return [(each.to_status, each.run_id) for each in store.profiles.transitions(profile_id)]


def test_a_search_validates_and_activates_what_holds(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control)
    assert (report.profile.skip, report.profile.status) == ("2,3", "active")
    assert moves(store, report.profile.id) == [
        ("candidate", report.run_id),
        ("validated", report.run_id),
        ("active", report.run_id),
    ]
    last = store.profiles.transitions(report.profile.id)[-1]
    assert last.reason == report.profile.reason
    assert "@" in last.actor
    assert last.command


def test_a_search_told_not_to_activate_only_validates(
    settings: Settings, store: Store, control: Control
) -> None:
    report = search(settings, store, control, activate=False)
    assert (report.profile.skip, report.profile.status) == ("2,3", "validated")
    assert report.headline.endswith("(validated, nothing was activated)")
    with pytest.raises(ProfileNotFoundError):
        store.profiles.resolve("path:/table", "translation")
    # The same search again finds the version that waits.
    again = search(settings, store, control, activate=False)
    assert (again.profile.id, again.profile.is_new) == (report.profile.id, False)


def test_the_same_search_activates_what_waits_and_decodes_nothing(
    settings: Settings, store: Store, control: Control
) -> None:
    waiting = search(settings, store, control, activate=False)
    num_calls = len(control.calls)
    report = search(settings, store, control)
    assert len(control.calls) == num_calls
    assert report.study == waiting.study
    assert (report.profile.id, report.profile.status) == (waiting.profile.id, "active")
    assert store.profiles.resolve("path:/table", "translation").id == waiting.profile.id
    assert moves(store, report.profile.id)[-1] == ("active", report.run_id)
    assert store.profiles.count() == 1


def measured_again(store: Store, profile_id: int, *, holds: bool) -> None:
    found = store_examples.verification(
        profile_id, store_examples.make_run(store).id, holds=holds, reason="the metric fell"
    )
    store.profiles.add_verification(found, store_examples.cause())


def test_what_did_not_hold_since_is_not_activated_and_the_search_says_so(
    settings: Settings, store: Store, control: Control
) -> None:
    waiting = search(settings, store, control, activate=False).profile
    measured_again(store, waiting.id, holds=False)
    report = search(settings, store, control)
    assert (report.profile.id, report.profile.status) == (waiting.id, "validated")
    assert report.headline.endswith("(validated, nothing was activated)")
    assert report.profile.reason == (
        f"{waiting.reason}; it was not activated, though it did not hold when it was measured last "
        f"(the metric fell): `specdec profiles verify {waiting.id}` measures it again"
    )
    measured_again(store, waiting.id, holds=True)
    assert search(settings, store, control).profile.status == "active"


def test_an_active_version_that_did_not_hold_since_stays_and_the_search_says_so(
    settings: Settings, store: Store, control: Control
) -> None:
    active = search(settings, store, control).profile
    measured_again(store, active.id, holds=False)
    again = search(settings, store, control).profile
    assert (again.id, again.status, again.is_new) == (active.id, "active", False)
    assert "it stays active, though it did not hold" in again.reason


def test_without_a_gain_the_dense_profile_waits_too(
    settings: Settings, store: Store, control: Control
) -> None:
    first = search(settings, store, control)
    report = search(settings, store, control, tolerance=0.9, activate=False)
    assert (report.profile.is_dense, report.profile.status) == (True, "validated")
    assert store.profiles.resolve("path:/table", "translation").id == first.profile.id
