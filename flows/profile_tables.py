"""Stored profiles as tables: versions, moves, measurements, and what differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from db.lifecycle import FigureAgreement, ProfileTransition, ProfileVerification
from db.profile_diff import ProfileDiff
from db.schemas import SkipProfile
from flows.views import ABSENT, TableView, change, quality_change, ratio


def profile_table(profiles: Sequence[SkipProfile]) -> TableView:
    """Some profile versions, in the given order."""
    return TableView(
        f"{len(profiles)} profile{'s' * (len(profiles) != 1)}",
        ("id", "status", "version", "domain", "target", "drafter", "skip", "speed-up", "created"),
        tuple(
            (
                str(each.id),
                each.status,
                str(each.version),
                each.domain,
                each.target,
                each.drafter,
                _skipped(each),
                f"{each.heldout.speedup.estimate:.3f}x" if each.heldout else ABSENT,
                _moment(each.created_at),
            )
            for each in profiles
        ),
    )


def _skipped(profile: SkipProfile) -> str:
    if profile.is_dense:
        return "dense (no gain)"
    return profile.skip if profile.prefill == "sparse" else f"{profile.skip} after dense prefill"


def transition_table(profile_id: int, moves: Sequence[ProfileTransition]) -> TableView:
    """Who gave a profile each of its statuses, when and why."""
    return TableView(
        f"Moves of profile {profile_id}, oldest first",
        ("time", "from", "to", "who", "run", "command", "reason"),
        tuple(
            (
                _moment(each.created_at),
                each.from_status or ABSENT,
                each.to_status,
                each.actor or ABSENT,
                each.run_id or ABSENT,
                each.command or ABSENT,
                each.reason,
            )
            for each in moves
        ),
    )


def verification_table(profile_id: int, measured: Sequence[ProfileVerification]) -> TableView:
    """Every repeated measurement of a profile."""
    return TableView(
        f"Measurements of profile {profile_id} after it was published",
        ("time", "holds", "acceptance", "metric", "speed-up", "hardware", "run"),
        tuple(
            (
                _moment(each.created_at),
                "yes" if each.holds else "no",
                change(each.heldout.acceptance_change) if each.heldout else ABSENT,
                quality_change(
                    each.heldout.metric_change,
                    each.heldout.metric_change_kind,
                    each.heldout.metric_name,
                )
                if each.heldout
                else ABSENT,
                ratio(each.heldout.speedup) if each.heldout else ABSENT,
                each.hardware or ABSENT,
                each.run_id,
            )
            for each in measured
        ),
    )


def agreement_table(agreements: Sequence[FigureAgreement]) -> TableView:
    """Each figure of a profile as stated and as measured again."""
    return TableView(
        "Sparse against dense, as stated and as measured again",
        ("change of", "stated [interval]", "measured now [interval]", "intervals"),
        tuple(
            (
                each.figure,
                change(each.stated, each.kind),
                change(each.measured, each.kind),
                "overlap" if each.overlaps else "do not overlap",
            )
            for each in agreements
        ),
    )


def diff_table(diff: ProfileDiff) -> TableView:
    """The fields and figures that two profiles do not share."""
    units = [
        (f"units that only {name} skips", *shown)
        for name, shown in (
            (str(diff.first), (_units(diff.only_first), ABSENT)),
            (str(diff.second), (ABSENT, _units(diff.only_second))),
        )
        if shown != (ABSENT, ABSENT)
    ]
    rows = [(each.name, _value(each.first), _value(each.second)) for each in diff.differences]
    count = len(diff.differences)
    return TableView(
        f"{count} field{'s' * (count != 1)} and figures differ" if count else "no difference",
        ("field or figure", f"profile {diff.first}", f"profile {diff.second}"),
        (*units, *rows),
    )


def _units(units: Sequence[str]) -> str:
    return ", ".join(units) or ABSENT


def _value(value: object) -> str:
    if value is None or value == "":
        return ABSENT
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M} UTC"
