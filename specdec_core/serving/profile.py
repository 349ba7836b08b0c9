"""Skip profiles as a serving system gets them, and whether one fits the loaded target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.evaluation import PREFILL_HELP, Prefill
from specdec_core.errors import ConfigError
from specdec_core.skip import SkipConfig

FaultKind = Literal[
    "malformed",
    "status",
    "target",
    "revision",
    "dtype",
    "drafter",
    "layers",
    "protected",
    "prefill",
]

_USABLE = ("active", "validated")


class ServedProfile(Record):
    """What to skip in one domain, with what it was validated for; unknown facts are empty."""

    label: str = Field(description="how people find it, such as 'profile 12'")
    domain: str
    target: str = Field("", description="model reference or identity")
    target_identity: str = Field("", description="content hash of the model's files")
    dtype: str = ""
    drafter: str = Field("", description="method or method:option=value,..")
    num_layers: int | None = Field(None, description="transformer blocks of the target")
    skip: str = Field("", description="skip set, empty for dense")
    prefill: Prefill = Field("sparse", description=PREFILL_HELP)
    status: str = Field(description="only 'active' and 'validated' profiles are used")


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What profiles are compared with.

    Attributes:
        reference: Model reference under which the target was loaded.
        identity: Content hash of its files; changes with the revision.
        dtype: Type that it runs in, one of `DType`.
        num_layers: Transformer blocks.
        drafter: Canonical text of the drafter in use; empty compares none.
        protected: 0-based layers that no profile may touch.
        prefills: The ways in which the engine can read prompts.
    """

    reference: str
    identity: str
    dtype: str
    num_layers: int
    drafter: str = ""
    protected: frozenset[int] = frozenset()
    prefills: frozenset[Prefill] = frozenset({"sparse"})


class Fault(NamedTuple):
    """Why a profile is refused, for counters and for people."""

    kind: FaultKind
    text: str


def find_fault(profile: ServedProfile, facts: TargetFacts) -> Fault | None:
    """Return why `profile` must not be used with this target, or None where it may.

    Source: TSS (domain map, look-up of a request).
    """
    return (
        _status_fault(profile)
        or _target_fault(profile, facts)
        or _drafter_fault(profile, facts)
        or _skip_fault(profile, facts)
    )


def _status_fault(profile: ServedProfile) -> Fault | None:
    if profile.status in _USABLE:
        return None
    return Fault("status", f"it is {profile.status!r}, and only {' or '.join(_USABLE)} ones serve")


def _target_fault(profile: ServedProfile, facts: TargetFacts) -> Fault | None:
    if profile.target and profile.target not in (facts.reference, facts.identity):
        # The same files under another name are the same target.
        if profile.target_identity != facts.identity:
            return Fault("target", f"it is for {profile.target}, not {facts.reference}")
    elif profile.target_identity and profile.target_identity != facts.identity:
        found, wanted = profile.target_identity[:12], facts.identity[:12]
        return Fault(
            "revision", f"it is for another revision: files {found}.., but {wanted}.. are loaded"
        )
    if profile.dtype and profile.dtype != facts.dtype:
        return Fault("dtype", f"it was validated in {profile.dtype}, not in {facts.dtype}")
    return None


def _drafter_fault(profile: ServedProfile, facts: TargetFacts) -> Fault | None:
    if not profile.drafter or not facts.drafter:
        return None
    try:
        drafter = format_drafter(parse_drafter(profile.drafter))
    except ConfigError as error:
        return Fault("malformed", str(error))
    if drafter != facts.drafter:
        return Fault("drafter", f"it was validated with {drafter}, not with {facts.drafter}")
    return None


def _skip_fault(profile: ServedProfile, facts: TargetFacts) -> Fault | None:
    try:
        skip = SkipConfig.parse(profile.skip)
    except ConfigError as error:
        return Fault("malformed", str(error))
    if str(skip) != profile.skip:
        return Fault("malformed", f"its skip set {profile.skip!r} is not sorted: write {skip}")
    if profile.num_layers is not None and profile.num_layers != facts.num_layers:
        return Fault(
            "layers", f"it is for {profile.num_layers} layers, the target has {facts.num_layers}"
        )
    try:
        skip.validate(facts.num_layers)
    except ConfigError as error:
        return Fault("layers", str(error))
    if skip.units and profile.prefill not in facts.prefills:
        return Fault(
            "prefill",
            f"it was validated with {profile.prefill} prefill, which this engine does not do",
        )
    touched = sorted({unit.layer for unit in skip.units} & facts.protected)
    if touched:
        return Fault("protected", f"it skips parts of the protected layers {touched}")
    return None
