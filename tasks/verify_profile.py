"""Measure a stored profile again: does it still hold on the held-out items of its own run?"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

from pydantic import Field, ValidationError

from db.clock import utc_now
from db.lifecycle import FigureAgreement, ProfileVerification, agreements
from db.repositories.profile_moves import unknown_profile
from db.schemas import ProfileStatus, SkipProfile
from db.store import Store
from specdec_core.config.base import Record
from specdec_core.config.search import SearchConfig
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, MeasurementError
from tasks.dispatch import Dispatcher
from tasks.driver import measure_heldout
from tasks.heldout import Heldout, HeldoutPlan, compare_heldout, plan_heldout
from tasks.jobs import StopCheck
from tasks.pool import PoolFactory
from tasks.prepare import Preparer, Workload, prepare
from tasks.profiles import present_cause
from tasks.publish import judge
from tasks.report import OnProgress
from tasks.run_rows import note_end, start_run
from tasks.runtime import LogLine, run_log

logger = logging.getLogger(__name__)

KIND = "profile-verify"


class VerifyConfig(Record):
    """What a verification repeats: stored as the configuration of its run."""

    profile_id: int
    heldout_ids: tuple[str, ...] = Field(description="items, as in the run of the profile")
    search: SearchConfig = Field(description="the search that found the profile")


class VerifyReport(Record):
    """A finished verification."""

    profile_id: int
    status: ProfileStatus = Field(description="what the profile is afterwards")
    verification: ProfileVerification
    agreements: tuple[FigureAgreement, ...] = Field(
        description="each figure as stated and as measured now, with both intervals"
    )
    notes: tuple[str, ...] = Field((), description="what a reader must know about the figures")


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A profile with what is needed to measure it again, everything checked."""

    profile: SkipProfile
    config: VerifyConfig
    workload: Workload


def verify_profile(
    profile_id: int,
    settings: Settings,
    store: Store,
    start_pool: PoolFactory,
    *,
    log: LogLine = logger.info,
    progress: OnProgress = lambda _progress: None,
    should_stop: StopCheck = lambda: False,
    prepare_workload: Preparer = prepare,
) -> VerifyReport:
    """Repeat the held-out comparison of a profile and store what it says.

    Nothing is answered from the store: items, limits and drafter are those of the profile's own
    run, the decoding is new. It holds if a search would publish it on the new figures. A candidate
    becomes validated or rejected by that; other profiles keep their status, but one that did not
    hold cannot be activated until it does. A dense profile skips nothing and always holds.

    Raises:
        ConfigError: if the profile's run, target or suite is not what it was, before any model is
            loaded.
        MeasurementError: if nothing could be compared.
        ProfileNotFoundError: if there is no such profile.
        SearchCancelledError: if told to stop.
        StoreError: if the database cannot be used.
        WorkerLostError: if no workers can be had.
    """
    repeat = _plan(profile_id, settings, store, prepare_workload)
    repeat.workload.register(store)
    run = start_run(store, KIND, repeat.profile.domain, repeat.config, settings, None)
    with note_end(store, run.id), run_log(settings, run.id):
        plan = heldout = None
        if not repeat.profile.is_dense:
            plan = _heldout_plan(repeat, run.id)
            dispatcher = Dispatcher(store, start_pool, run.id, should_stop=should_stop)
            with contextlib.closing(dispatcher):
                measure_heldout(dispatcher, plan.in_order, progress)
            heldout = compare_heldout(store, plan, repeat.workload.suite)
            if heldout is None:
                raise MeasurementError(
                    f"profile {profile_id} cannot be verified: no held-out item could be evaluated "
                    f"by all three methods, `specdec runs show {run.id}` names what failed"
                )
        report = _stored(store, repeat, run.id, plan, heldout)
        summary = report.model_dump(mode="json")
        store.runs.update(run.id, status="completed", summary=summary, error=None)
    log(report.verification.reason)
    return report


def _plan(profile_id: int, settings: Settings, store: Store, prepare_workload: Preparer) -> _Repeat:
    profile = store.profiles.get(profile_id)
    if profile is None:
        raise unknown_profile(profile_id)
    run = store.runs.get(profile.run_id)
    assert run is not None  # the database holds on to the runs of its profiles
    try:
        config = VerifyConfig.model_validate(
            {
                "profile_id": profile_id,
                "heldout_ids": run.summary.get("heldout_ids"),
                "search": run.config,
            }
        )
    except ValidationError as error:
        raise ConfigError(
            f"profile {profile_id} cannot be measured again: its run {run.id} is {run.status} and "
            "says not on which items it was measured; search again"
        ) from error
    search = config.search
    workload = prepare_workload(
        profile.target, profile.domain, search.suite, profile.dtype, settings
    )
    _check_same(profile, workload)
    return _Repeat(profile, config, workload)


def _check_same(profile: SkipProfile, workload: Workload) -> None:
    """Refuse to compare with figures of another target or other data."""
    target = workload.target
    found = {
        "target_identity": target.identity,
        "num_layers": target.num_layers,
        "suite_hash": workload.suite.content_hash,
        "template_hash": workload.template_hash,
    }
    for name, value in found.items():
        stated = getattr(profile, name)
        if stated != value:
            raise ConfigError(
                f"profile {profile.id} was measured with {name} {str(stated)[:12]}, and here it "
                f"is {str(value)[:12]}: it is for another revision of {profile.target} or of its "
                "data, search again"
            )


def _heldout_plan(repeat: _Repeat, run_id: str) -> HeldoutPlan:
    return plan_heldout(
        repeat.workload,
        repeat.profile.skip,
        repeat.profile.drafter,
        repeat.config.heldout_ids,
        repeat.config.search.max_new_tokens,
        prefill=repeat.profile.prefill,
        repetition=f"verify/{run_id}",
    )


def _stored(
    store: Store, repeat: _Repeat, run_id: str, plan: HeldoutPlan | None, heldout: Heldout | None
) -> VerifyReport:
    """Judge, store the measurement and what follows from it, and return the report."""
    profile = repeat.profile
    assert profile.id is not None  # a stored one has its id
    if plan is None or heldout is None:
        holds, reason = True, "it skips nothing: the target itself is what it is compared with"
        row = None
    else:
        holds, reason = judge(profile.skip, heldout, repeat.config.search)
        row = store.evaluations.row(plan.chunks[0]["dense"].key)
    measured = ProfileVerification(
        profile_id=profile.id,
        run_id=run_id,
        holds=holds,
        reason=reason,
        heldout=heldout.comparison if heldout else None,
        hardware=row.hardware if row else "",
        created_at=utc_now(),
    )
    stored = store.profiles.add_verification(measured, present_cause(reason, run_id))
    after = store.profiles.get(profile.id)
    assert after is not None
    notes = list(heldout.notes) if heldout else []
    if heldout and stored.hardware != profile.hardware:
        notes.append(
            f"measured on {stored.hardware}, the profile on {profile.hardware or 'unknown'}: "
            "speeds need not agree"
        )
    pairs = (
        agreements(profile.heldout, stored.heldout) if profile.heldout and stored.heldout else []
    )
    return VerifyReport(
        profile_id=profile.id,
        status=after.status,
        verification=stored,
        agreements=tuple(pairs),
        notes=tuple(notes),
    )
