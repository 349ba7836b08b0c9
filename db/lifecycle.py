"""The life of a profile version: which moves exist, and the record of each that was made.

candidate -> validated -> active -> retired, and retired -> active to go back to a former version.
A candidate that does not hold is rejected, for good.
"""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from db.schemas import HeldoutComparison, Interval, MetricChangeKind, ProfileStatus, SkipProfile
from specdec_core.config.base import Record
from specdec_core.errors import ConfigError

MOVES: dict[ProfileStatus, frozenset[ProfileStatus]] = {
    "candidate": frozenset({"validated", "rejected"}),
    "validated": frozenset({"active", "retired"}),
    "active": frozenset({"retired"}),
    "retired": frozenset({"active"}),
    "rejected": frozenset(),
}
"""Every allowed move; the repositories make no other."""

PUBLISHED_AS: dict[ProfileStatus, tuple[ProfileStatus, ...]] = {
    "candidate": ("candidate",),
    "validated": ("candidate", "validated"),
    "active": ("candidate", "validated", "active"),
    "rejected": ("candidate", "rejected"),
}
"""The statuses that a version goes through when it is published with the last of them."""

_ADVICE = {
    "candidate": "`specdec profiles verify {id}` measures it, and validates it if it holds",
    "rejected": "it did not hold when it was measured; search again",
}


def check_move(profile: SkipProfile, status: ProfileStatus) -> None:
    """Check that a stored profile may become `status`.

    Raises:
        ConfigError: if it may not; says what would have to come first.
    """
    allowed = MOVES[profile.status]
    if status in allowed:
        return
    expected = f"only {' or '.join(sorted(allowed))}" if allowed else "nor anything else"
    advice = _ADVICE.get(profile.status, "`specdec profiles history` shows its versions")
    raise ConfigError(
        f"profile {profile.id} is {profile.status} and cannot become {status}, {expected}: "
        f"{advice.format(id=profile.id)}"
    )


class Cause(Record):
    """Why a profile changes its status, and who or what changes it."""

    reason: str = Field(min_length=1, description="one sentence")
    run_id: str | None = Field(None, description="run that decided it, None for a person")
    command: str = Field("", description="command line of the process")
    actor: str = Field("", description="account and machine, as user@host")


class ProfileTransition(Cause):
    """One change of status that was made."""

    id: int
    profile_id: int
    from_status: ProfileStatus | None = Field(description="None where the version began")
    to_status: ProfileStatus
    created_at: AwareDatetime


class FigureAgreement(Record):
    """One figure as the profile states it and as it was measured again."""

    figure: str
    kind: MetricChangeKind = Field("relative", description="how a change is expressed")
    stated: Interval
    measured: Interval
    overlaps: bool = Field(description="whether the two intervals have a value in common")


class ProfileVerification(Record):
    """A repeated held-out measurement of a stored profile."""

    id: int | None = Field(None, description="given by the store")
    profile_id: int
    run_id: str = Field(description="run that measured")
    holds: bool = Field(description="whether it would be published on these figures")
    reason: str = Field(description="what decided, one sentence")
    heldout: HeldoutComparison | None = Field(
        None, description="None where nothing could be compared"
    )
    hardware: str = Field("", description="where the seconds were measured")
    created_at: AwareDatetime


def agreements(stated: HeldoutComparison, measured: HeldoutComparison) -> list[FigureAgreement]:
    """Return how each figure that both have was stated and is measured now.

    Changes of the metric that are of different kinds are left out.
    """
    pairs: dict[str, tuple[Interval | None, Interval | None, MetricChangeKind]] = {
        "acceptance": (stated.acceptance_change, measured.acceptance_change, "relative"),
        measured.metric_name: (
            stated.metric_change,
            measured.metric_change,
            measured.metric_change_kind,
        ),
        "speed": (_gain(stated.speedup), _gain(measured.speedup), "relative"),
    }
    kinds = [(one.metric_name, one.metric_change_kind) for one in (stated, measured)]
    if kinds[0] != kinds[1]:
        del pairs[measured.metric_name]
    return [
        FigureAgreement(
            figure=figure, kind=kind, stated=one, measured=other, overlaps=_overlap(one, other)
        )
        for figure, (one, other, kind) in pairs.items()
        if one is not None and other is not None
    ]


def _gain(ratio: Interval) -> Interval:
    """A ratio as a relative change."""
    return Interval(
        estimate=ratio.estimate - 1.0,
        low=ratio.low - 1.0,
        high=ratio.high - 1.0,
        confidence=ratio.confidence,
    )


def _overlap(one: Interval, other: Interval) -> bool:
    return one.low <= other.high and other.low <= one.high
