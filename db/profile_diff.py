"""What two stored profiles differ in."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from db.schemas import SkipProfile
from specdec_core.config.base import Record
from specdec_core.skip import SkipConfig

_FIGURES = ("selection", "heldout")
_OWN = ("id", "version", "created_at", "run_id")
"""Fields that no two versions share."""


class Difference(Record):
    """One field or figure that two profiles do not share; None where one of them has none."""

    name: str = Field(description="dotted path, as in the JSON of a profile")
    kind: Literal["field", "figure"]
    first: Any
    second: Any


class ProfileDiff(Record):
    """How two profiles differ."""

    first: int
    second: int
    only_first: tuple[str, ...] = Field(description="units that only the first skips")
    only_second: tuple[str, ...] = Field(description="units that only the second skips")
    differences: tuple[Difference, ...]


def diff_profiles(first: SkipProfile, second: SkipProfile) -> ProfileDiff:
    """Return the fields and figures that differ, in the order of a profile's JSON."""
    assert first.id is not None  # stored ones have their ids
    assert second.id is not None
    one, other = (_flat(each.model_dump(mode="json", exclude={*_OWN})) for each in (first, second))
    units = [{str(unit) for unit in SkipConfig.parse(each.skip).units} for each in (first, second)]
    return ProfileDiff(
        first=first.id,
        second=second.id,
        only_first=_ordered(first.skip, units[0] - units[1]),
        only_second=_ordered(second.skip, units[1] - units[0]),
        differences=tuple(
            Difference(
                name=name,
                kind="figure" if name.split(".")[0] in _FIGURES else "field",
                first=one.get(name),
                second=other.get(name),
            )
            for name in dict.fromkeys([*one, *other])
            if one.get(name) != other.get(name)
        ),
    )


def _ordered(skip: str, units: set[str]) -> tuple[str, ...]:
    return tuple(unit for unit in skip.split(",") if unit in units)


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    prefix = f"{path}." if path else ""
    return {
        name: inner
        for key, each in value.items()
        for name, inner in _flat(each, f"{prefix}{key}").items()
    }
