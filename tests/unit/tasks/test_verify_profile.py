"""Measuring a profile again, with workers in this process: what holds, what is refused."""

from __future__ import annotations

import pytest

from db.schemas import Interval, SkipProfile
from db.store import Store
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, MeasurementError, ProfileNotFoundError
from tasks.pool import pool_factory
from tasks.prepare import Workload
from tasks.verify_profile import VerifyReport, verify_profile
from tests.integration import store_examples as examples
from tests.table_evaluator import Control, TableEvaluator, config, workload

IDS = tuple(f"item-{number:02d}" for number in range(20))


def published(store: Store, skip: str = "2,3", status: str = "active") -> SkipProfile:
    """A profile of the table's target with a run that says how it was measured."""
    known = workload()
    known.register(store)
    search = config().model_dump(mode="json")
    run = examples.make_run(store, config=search)
    store.runs.update(run.id, status="completed", summary={"heldout_ids": IDS})
    return store.profiles.publish(
        examples.profile(
            run.id,
            target=known.target.reference,
            target_identity=known.target.identity,
            num_layers=known.target.num_layers,
            dtype=known.target.dtype,
            drafter=config().drafter,
            skip=skip,
            is_dense=not skip,
            status=status,
            suite_hash=known.suite.content_hash,
            template_hash=known.template_hash,
            hardware="table",
        )
    )


def verify(
    profile: SkipProfile, settings: Settings, store: Store, control: Control, **changes: object
) -> VerifyReport:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    options = {"prepare_workload": workload, **changes}
    return verify_profile(profile.id or 0, settings, store, start, **options)  # type: ignore[arg-type]  # varied by the tests


def test_a_profile_that_holds_is_measured_on_its_own_items_and_stored(
    settings: Settings, store: Store, control: Control
) -> None:
    profile = published(store)
    report = verify(profile, settings, store, control)
    assert report.verification.holds
    assert report.verification.reason.startswith("2,3 holds on 20 held-out items")
    assert store.profiles.verifications(profile.id or 0) == [report.verification]
    assert store.profiles.get(profile.id or 0) == profile
    found = report.verification.heldout
    assert found is not None
    # 24 tokens after the first: 12 dense steps, and 24 / 2.6 rounded, 9 sparse ones.
    assert found.num_items == 20
    assert found.acceptance_change.estimate == pytest.approx(12 / 9 - 1)
    assert found.speedup.estimate == pytest.approx(12 / 9)
    run = store.runs.get(report.verification.run_id)
    assert run is not None
    assert (run.kind, run.status) == ("profile-verify", "completed")
    assert VerifyReport.model_validate(run.summary) == report
    roles = [each.role for each in store.runs.evaluations(run.id)]
    # Ten turns of two items.
    assert sorted(roles) == sorted(
        ["heldout-dense", "heldout-sparse", "heldout-autoregressive"] * 10
    )


def test_every_verification_decodes_anew(
    settings: Settings, store: Store, control: Control
) -> None:
    profile = published(store)
    verify(profile, settings, store, control)
    num_calls = len(control.calls)
    assert num_calls == 30
    verify(profile, settings, store, control)
    keys = [key for key, _ in control.calls]
    assert len(keys) == 2 * num_calls == len(set(keys))
    assert len(store.profiles.verifications(profile.id or 0)) == 2


def test_stated_and_measured_figures_are_held_against_each_other(
    settings: Settings, store: Store, control: Control
) -> None:
    report = verify(published(store), settings, store, control)
    by_figure = {each.figure: each for each in report.agreements}
    # Stated: acceptance +5 to +15 %, speed x1.05 to x1.16. Measured: both +33 %.
    acceptance, speed = by_figure["acceptance"], by_figure["speed"]
    assert acceptance.stated == Interval(estimate=0.1, low=0.05, high=0.15)
    assert speed.stated.high == pytest.approx(0.16)
    assert speed.measured.estimate == pytest.approx(1 / 3)
    assert not acceptance.overlaps
    assert not speed.overlaps
    # Stated: metric -6 to +1 %. Measured: 0.53 of 0.5 and noise, +6 %, and 20 pairs alike.
    assert not by_figure["metric"].overlaps
    assert report.notes == ()


def test_a_profile_that_does_not_hold_says_why_and_keeps_its_status(
    settings: Settings, store: Store, control: Control
) -> None:
    profile = published(store, skip="4")  # costs 0.2 of a metric of 0.5
    report = verify(profile, settings, store, control)
    assert not report.verification.holds
    assert "4 did not hold on held-out items: the metric changed by -40" in (
        report.verification.reason
    )
    assert (report.status, store.profiles.get(profile.id or 0)) == ("active", profile)


@pytest.mark.parametrize(
    ("skip", "status"), [("2,3", "validated"), ("4", "rejected"), ("", "validated")]
)
def test_a_candidate_becomes_what_was_measured(
    settings: Settings, store: Store, control: Control, skip: str, status: str
) -> None:
    profile = published(store, skip=skip, status="candidate")
    report = verify(profile, settings, store, control)
    assert report.status == status
    last = store.profiles.transitions(profile.id or 0)[-1]
    assert (last.to_status, last.run_id) == (status, report.verification.run_id)
    assert last.reason == report.verification.reason
    assert "@" in last.actor


def test_a_dense_profile_holds_without_decoding(
    settings: Settings, store: Store, control: Control
) -> None:
    report = verify(published(store, skip=""), settings, store, control)
    assert report.verification.holds
    assert (report.verification.heldout, report.agreements) == (None, ())
    assert control.calls == []


def test_another_machine_is_named(settings: Settings, store: Store, control: Control) -> None:
    profile = published(store)
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE specdec_skip_profiles SET hardware = 'elsewhere'")
    report = verify(profile, settings, store, control)
    assert report.notes == ("measured on table, the profile on elsewhere: speeds need not agree",)


def test_what_cannot_be_measured_again_is_refused_before_a_worker_starts(
    settings: Settings, store: Store, control: Control
) -> None:
    profile = published(store)

    def elsewhere(**changes: object) -> object:
        def prepare(*given: object) -> Workload:
            known = workload(*given)  # type: ignore[arg-type]  # what a preparer is given
            info = {name: getattr(known.target, name) for name in known.target.__slots__}
            target = type(known.target)(**{**info, **changes})
            return Workload(target, known.suite, known.template_hash, known.code_version)

        return prepare

    with pytest.raises(ConfigError, match=r"target_identity table-identi.* other"):
        verify(profile, settings, store, control, prepare_workload=elsewhere(identity="other"))
    with pytest.raises(ConfigError, match=r"num_layers 6, and here it is 7"):
        verify(profile, settings, store, control, prepare_workload=elsewhere(num_layers=7))
    run = store.profiles.publish(
        profile.model_copy(
            update={"id": None, "version": None, "run_id": examples.make_run(store).id}
        )
    )
    with pytest.raises(ConfigError, match="says not on which items it was measured"):
        verify(run, settings, store, control)
    with pytest.raises(ProfileNotFoundError, match="there is no profile 99"):
        verify(profile.model_copy(update={"id": 99}), settings, store, control)
    assert control.calls == []
    assert store.runs.count(kind="profile-verify") == 0


def test_a_measurement_that_fails_decides_nothing(
    settings: Settings, store: Store, control: Control
) -> None:
    profile = published(store, status="candidate")
    (control.folder / "raise").write_text("2,3")
    with pytest.raises(MeasurementError, match="no held-out item could be evaluated"):
        verify(profile, settings, store, control)
    assert store.profiles.get(profile.id or 0) == profile
    assert store.profiles.verifications(profile.id or 0) == []
    (run,) = store.runs.list(kind="profile-verify")
    assert run.status == "failed"


def test_requests_differ_from_those_of_the_search_in_their_repetition_alone(
    settings: Settings, store: Store, control: Control
) -> None:
    report = verify(published(store), settings, store, control)
    rows = store.runs.evaluations(report.verification.run_id)
    requests: list[EvaluationRequest] = [each.row.request for each in rows]
    items = [item for one in requests if one.skip for item in one.item_ids]
    assert tuple(items) == IDS
    for one in requests:
        assert one.repetition == f"verify/{report.verification.run_id}"
        assert (one.max_new_tokens, one.batch_size, one.is_timed) == (
            config().max_new_tokens,
            1,
            True,
        )
