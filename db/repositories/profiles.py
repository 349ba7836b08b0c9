"""Versioned skip profiles: published, resolved, at most one active per key."""

from __future__ import annotations

import builtins
import difflib
import logging
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    bindparam,
    func,
    or_,
    select,
    update,
)

from db.engine import Database
from db.models import PROFILE_KEY, SkipProfileTable
from db.repositories.common import (
    DEFAULT_LIMIT,
    count_rows,
    matching,
    page,
    require_run,
    to_record,
)
from db.schemas import ClosestProfile, ProfileKey, ProfileStatus, SkipProfile
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.errors import ConfigError, ProfileNotFoundError, StoreError

logger = logging.getLogger(__name__)

NUM_CLOSEST = 5


@dataclass(frozen=True, slots=True)
class ProfileRepository:
    """Reads and writes skip profiles."""

    database: Database

    def publish(self, profile: SkipProfile) -> SkipProfile:
        """Store `profile` as the next version of its key and return it with id and version.

        An active profile retires the one that was active, in the same transaction. Publishing the
        same skip set for the same key from the same run again returns the version stored before.

        Raises:
            ConfigError: if `profile` has an id or version, because it is stored already.
            StoreError: if its run is not stored, or the run published it with another status.
        """
        if profile.id is not None or profile.version is not None:
            raise ConfigError(
                f"profile {profile.id} is stored already as version {profile.version}: publish a "
                "copy without id and version"
            )
        with self.database.write() as connection:
            self.database.lock(connection, f"profile {_key_values(profile)}")
            require_run(connection, profile.run_id)
            row = connection.execute(_published(profile)).mappings().first()
            if row is not None:
                return _unchanged(to_record(SkipProfile, row), profile)
            return self._insert(connection, profile)

    def _insert(self, connection: Connection, profile: SkipProfile) -> SkipProfile:
        conditions = matching(SkipProfileTable, **_key_values(profile))
        latest = select(func.max(SkipProfileTable.version)).where(*conditions)
        version = (connection.execute(latest).scalar() or 0) + 1
        if profile.status == "active":
            connection.execute(
                update(SkipProfileTable)
                .where(*conditions, SkipProfileTable.status == "active")
                .values(status="retired")
            )
        values = profile.model_dump(exclude={"id", "version", "selection", "heldout"})
        values["selection"] = profile.selection.model_dump(mode="json")
        values["heldout"] = profile.heldout and profile.heldout.model_dump(mode="json")
        statement = (
            self.database.insert(SkipProfileTable)
            .values(version=version, **values)
            .returning(SkipProfileTable)
        )
        stored = to_record(SkipProfile, connection.execute(statement).mappings().one())
        logger.info(
            "profile %s: version %s of %s is %s", stored.id, version, stored.domain, stored.status
        )
        return stored

    def get(self, profile_id: int) -> SkipProfile | None:
        """Return one version by id, or None."""
        with self.database.read() as connection:
            row = connection.execute(_by_id(profile_id)).mappings().first()
            return None if row is None else to_record(SkipProfile, row)

    def list(
        self,
        domain: str | None = None,
        target: str | None = None,
        drafter: str | None = None,
        status: ProfileStatus | None = None,
        limit: int | None = DEFAULT_LIMIT,
        offset: int = 0,
    ) -> builtins.list[SkipProfile]:
        """Return profiles that match every filter given, newest first.

        Args:
            domain: Task domain.
            target: Model reference or identity.
            drafter: Drafter in any spelling of its options.
            status: Status.
            limit: Most rows; None means all.
            offset: Rows left out first.

        Raises:
            ConfigError: for an unknown drafter, or a negative limit or offset.
        """
        conditions = _conditions(domain=domain, target=target, drafter=drafter, status=status)
        query = select(SkipProfileTable).where(*conditions).order_by(SkipProfileTable.id.desc())
        with self.database.read() as connection:
            rows = connection.execute(page(query, limit, offset)).mappings()
            return [to_record(SkipProfile, row) for row in rows]

    def count(
        self,
        domain: str | None = None,
        target: str | None = None,
        drafter: str | None = None,
        status: ProfileStatus | None = None,
    ) -> int:
        """Return how many profiles match every filter given."""
        conditions = _conditions(domain=domain, target=target, drafter=drafter, status=status)
        with self.database.read() as connection:
            return count_rows(connection, SkipProfileTable, conditions)

    def history(self, profile_id: int) -> builtins.list[SkipProfile]:
        """Return every version of the key of one profile, newest first; empty if it is unknown."""
        with self.database.read() as connection:
            row = connection.execute(_by_id(profile_id)).mappings().first()
            if row is None:
                return []
            conditions = matching(SkipProfileTable, **{name: row[name] for name in PROFILE_KEY})
            query = select(SkipProfileTable).where(*conditions)
            query = query.order_by(SkipProfileTable.version.desc())
            rows = connection.execute(query).mappings()
            return [to_record(SkipProfile, each) for each in rows]

    def resolve(
        self, target: str, domain: str, drafter: str | None = None, dtype: str | None = None
    ) -> SkipProfile:
        """Return the active profile for a target and domain.

        Args:
            target: Model reference or identity.
            domain: Task domain.
            drafter: Drafter in any spelling of its options; None takes the profile published last.
            dtype: Floating point type of the target; None takes the profile published last.

        Raises:
            ProfileNotFoundError: if there is none; the message names the closest keys.
            ConfigError: for an unknown drafter.
        """
        asked = {"target": target, "domain": domain}
        if drafter is not None:
            asked["drafter"] = canonical_drafter(drafter)
        if dtype is not None:
            asked["dtype"] = dtype
        query = _resolve_query(frozenset(asked))
        with self.database.read() as connection:
            row = connection.execute(query, asked).mappings().first()
            if row is not None:
                return to_record(SkipProfile, row)
        raise ProfileNotFoundError(
            _not_found(
                {"target": target, "domain": domain, "drafter": drafter, "dtype": dtype},
                self.closest(target, domain, drafter, dtype),
            )
        )

    def closest(
        self, target: str, domain: str, drafter: str | None = None, dtype: str | None = None
    ) -> builtins.list[ClosestProfile]:
        """Return the active profiles nearest to a question, at most 5.

        Fewest differing fields come first; among equals, the most similar spelling.
        """
        asked = {"target": target, "domain": domain, "drafter": drafter, "dtype": dtype}
        columns = select(SkipProfileTable.id, SkipProfileTable.target)
        columns = columns.add_columns(*(getattr(SkipProfileTable, name) for name in PROFILE_KEY))
        with self.database.read() as connection:
            query = columns.where(SkipProfileTable.status == "active")
            rows = connection.execute(query).mappings().all()
            found = [
                ClosestProfile(
                    key=to_record(ProfileKey, row),
                    profile_id=row["id"],
                    differs=_differences(asked, to_record(ProfileKey, row)),
                )
                for row in rows
            ]
        return sorted(found, key=lambda each: _distance(asked, each))[:NUM_CLOSEST]


def canonical_drafter(text: str) -> str:
    """Return the spelling under which a drafter is stored.

    Raises:
        ConfigError: if the drafter is unknown.
    """
    return format_drafter(parse_drafter(text))


@cache
def _resolve_query(asked: frozenset[str]) -> Select[Any]:
    """Return the query with a parameter per name in `asked`; building it costs more than asking."""
    table = SkipProfileTable
    conditions = [getattr(table, name) == bindparam(name) for name in asked - {"target"}]
    target: BindParameter[str] = bindparam("target")
    conditions.append(or_(table.target == target, table.target_identity == target))
    query = select(table).where(table.status == "active", *conditions)
    return query.order_by(table.id.desc()).limit(1)


def _conditions(
    *,
    domain: str | None = None,
    target: str | None = None,
    drafter: str | None = None,
    status: str | None = None,
) -> list[ColumnElement[bool]]:
    spelled = None if drafter is None else canonical_drafter(drafter)
    conditions = matching(SkipProfileTable, status=status, domain=domain, drafter=spelled)
    if target is not None:
        conditions.append(
            or_(SkipProfileTable.target == target, SkipProfileTable.target_identity == target)
        )
    return conditions


def _by_id(profile_id: int) -> Select[Any]:
    return select(SkipProfileTable).where(SkipProfileTable.id == profile_id)


def _key_values(profile: SkipProfile) -> dict[str, str]:
    return {name: getattr(profile, name) for name in PROFILE_KEY}


def _published(profile: SkipProfile) -> Select[Any]:
    natural = {**_key_values(profile), "run_id": profile.run_id, "skip": profile.skip}
    return select(SkipProfileTable).where(*matching(SkipProfileTable, **natural))


def _unchanged(stored: SkipProfile, given: SkipProfile) -> SkipProfile:
    former = "active" if stored.status == "retired" else stored.status
    if given.status not in (former, stored.status):
        raise StoreError(
            f"run {stored.run_id!r} published skip set {stored.skip!r} as {stored.status} before "
            f"(profile {stored.id}) and now as {given.status}: publish it from a new run"
        )
    logger.info("profile %s is published already, nothing written", stored.id)
    return stored


def _differences(asked: dict[str, str | None], key: ProfileKey) -> tuple[str, ...]:
    differing = []
    for name, value in asked.items():
        stored = {getattr(key, name)} | ({key.target_identity} if name == "target" else set())
        wanted = canonical_drafter(value) if name == "drafter" and value is not None else value
        if wanted is not None and wanted not in stored:
            differing.append(name)
    return tuple(differing)


def _distance(asked: dict[str, str | None], found: ClosestProfile) -> tuple[int, float, int]:
    similarity = sum(
        difflib.SequenceMatcher(None, asked[name] or "", getattr(found.key, name)).ratio()
        for name in found.differs
    )
    return len(found.differs), -similarity, -found.profile_id


def _not_found(asked: dict[str, str | None], closest: builtins.list[ClosestProfile]) -> str:
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
