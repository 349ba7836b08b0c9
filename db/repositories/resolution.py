"""Questions about profiles: filters, the active one, and the nearest where none is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Select, bindparam, select

from db.models import SkipProfileTable
from db.repositories.common import matching, of_target
from db.schemas import ClosestProfile, ProfileKey
from specdec_core.config.drafters import format_drafter, parse_drafter

NUM_CLOSEST = 5


def canonical_drafter(text: str) -> str:
    """Return the spelling under which a drafter is stored.

    Raises:
        ConfigError: if the drafter is unknown.
    """
    return format_drafter(parse_drafter(text))


def question(
    target: str, domain: str, drafter: str | None, dtype: str | None, *, is_short: bool = False
) -> tuple[Select[Any], dict[str, str]]:
    """Return the query for the active profile and its parameters."""
    asked = {"target": target, "domain": domain}
    if drafter is not None:
        asked["drafter"] = canonical_drafter(drafter)
    if dtype is not None:
        asked["dtype"] = dtype
    return _resolve_query(frozenset(asked), is_short), asked


@cache
def _resolve_query(asked: frozenset[str], is_short: bool) -> Select[Any]:
    """Return the query with a parameter per name in `asked`; building it costs more than asking."""
    table = SkipProfileTable
    conditions = [getattr(table, name) == bindparam(name) for name in asked - {"target"}]
    target: BindParameter[str] = bindparam("target")
    conditions.append(of_target(table, target))
    columns = (table.id, table.run_id) if is_short else (table,)
    query = select(*columns).where(table.status == "active", *conditions)
    return query.order_by(table.id.desc()).limit(1)


def filter_conditions(
    *,
    domain: str | None = None,
    target: str | None = None,
    drafter: str | None = None,
    status: str | None = None,
) -> list[ColumnElement[bool]]:
    """Return the conditions of a list of profiles; what is None filters nothing."""
    spelled = None if drafter is None else canonical_drafter(drafter)
    return matching(SkipProfileTable, target=target, status=status, domain=domain, drafter=spelled)


def closest_first(
    asked: dict[str, str | None], active: Iterable[tuple[int, ProfileKey]]
) -> list[ClosestProfile]:
    """Return the active profiles nearest to a question, at most `NUM_CLOSEST`.

    Args:
        asked: Target, domain, drafter and dtype; None where any would do.
        active: Id and key of every active profile.
    """
    drafter = asked["drafter"]
    wanted = {**asked, "drafter": None if drafter is None else canonical_drafter(drafter)}
    found = [
        ClosestProfile(key=key, profile_id=profile_id, differs=_differences(wanted, key))
        for profile_id, key in active
    ]
    return sorted(found, key=lambda each: _distance(wanted, each))[:NUM_CLOSEST]


def _differences(wanted: dict[str, str | None], key: ProfileKey) -> tuple[str, ...]:
    differing = []
    for name, value in wanted.items():
        stored = {getattr(key, name)} | ({key.target_identity} if name == "target" else set())
        if value is not None and value not in stored:
            differing.append(name)
    return tuple(differing)


def _distance(wanted: dict[str, str | None], found: ClosestProfile) -> tuple[int, float, int]:
    similarity = sum(
        difflib.SequenceMatcher(None, wanted[name] or "", getattr(found.key, name)).ratio()
        for name in found.differs
    )
    return len(found.differs), -similarity, -found.profile_id


def not_found_text(asked: dict[str, str | None], closest: list[ClosestProfile]) -> str:
    """Return the message of a question that no active profile answers."""
    question = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
    known = "; ".join(
        f"target {each.key.target!r}, domain {each.key.domain!r}, drafter {each.key.drafter!r}, "
        f"dtype {each.key.dtype!r} (differs in {', '.join(each.differs)})"
        for each in closest
    )
    return (
        f"no active profile for {question}: the closest are {known or 'none, the store is empty'}; "
        "use one of these, or search one (`specdec search --help`)"
    )
