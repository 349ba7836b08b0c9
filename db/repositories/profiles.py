"""Versioned skip profiles: published, resolved, at most one active per key."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, select

from db.engine import Database
from db.lifecycle import PUBLISHED_AS, Cause, ProfileTransition, ProfileVerification, check_move
from db.models import (
    PROFILE_KEY,
    ProfileTransitionTable,
    ProfileVerificationTable,
    SkipProfileTable,
)
from db.repositories.common import (
    DEFAULT_LIMIT,
    count_rows,
    matching,
    read_page,
    require_run,
    to_record,
)
from db.repositories.profile_moves import (
    check_held,
    check_target,
    insert_verification,
    insert_version,
    key_values,
    lock_key,
    retire_active,
    set_status,
    unchanged,
    unknown_profile,
)
from db.repositories.resolution import (
    closest_first,
    filter_conditions,
    not_found_text,
    question,
)
from db.schemas import ClosestProfile, ProfileKey, ProfileStatus, SkipProfile
from specdec_core.errors import ConfigError, ProfileNotFoundError


@dataclass(frozen=True, slots=True)
class ProfileRepository:
    """Reads and writes skip profiles."""

    database: Database

    def publish(self, profile: SkipProfile, cause: Cause | None = None) -> SkipProfile:
        """Store `profile` as the next version of its key and return it with id and version.

        The moves up to its status are recorded. An active profile retires the one that was active,
        in the same transaction. Publishing the same skip set for the same key from the same run
        again returns the version stored before, whatever became of it.

        Args:
            profile: A profile of any status but retired.
            cause: Who publishes it and why; default: its run, for its reason.

        Raises:
            ConfigError: if `profile` has an id or version, because it is stored already, or is
                retired.
            StoreError: if its run is not stored, or the run published it with another status.
        """
        if profile.id is not None or profile.version is not None:
            raise ConfigError(
                f"profile {profile.id} is stored already as version {profile.version}: publish a "
                "copy without id and version"
            )
        if profile.status not in PUBLISHED_AS:
            raise ConfigError(
                f"a profile cannot be published as {profile.status}: choose one of "
                f"{', '.join(PUBLISHED_AS)}"
            )
        cause = cause or Cause(reason=profile.reason, run_id=profile.run_id)
        with self.database.write() as connection:
            lock_key(self.database, connection, profile)
            require_run(connection, profile.run_id)
            row = connection.execute(_published(profile)).mappings().first()
            if row is not None:
                return unchanged(connection, to_record(SkipProfile, row), profile)
            return insert_version(self.database, connection, profile, cause)

    def move(self, profile_id: int, status: ProfileStatus, cause: Cause) -> SkipProfile:
        """Give a profile another status and return it; one that has it already stays as it is.

        Activating retires the version that was active, in the same transaction. Moves of one key
        take turns, across processes.

        Raises:
            ConfigError: if `db.lifecycle.MOVES` has no such move; if a profile to be activated is
                for another revision or layer count of its target than the store knows, or did not
                hold when it was measured last.
            ProfileNotFoundError: if there is no such profile.
            StoreError: if the run of `cause` is not stored.
        """
        with self.database.write() as connection:
            profile = self._locked(connection, profile_id)
            return self._move(connection, profile, status, cause)

    def add_verification(
        self, verification: ProfileVerification, cause: Cause
    ) -> ProfileVerification:
        """Store a repeated measurement; a candidate becomes validated or rejected by it.

        The measurement of one run is stored once.

        Raises:
            ProfileNotFoundError: if there is no such profile.
            StoreError: if its run is not stored.
        """
        with self.database.write() as connection:
            profile = self._locked(connection, verification.profile_id)
            require_run(connection, verification.run_id)
            stored = insert_verification(self.database, connection, verification)
            if profile.status == "candidate":
                status: ProfileStatus = "validated" if stored.holds else "rejected"
                self._move(connection, profile, status, cause)
            return stored

    def check_target(self, profile: SkipProfile) -> None:
        """Check a profile against what the store knows of its target.

        Raises:
            ConfigError: if the target is unknown, another revision, or has another layer count.
        """
        with self.database.read() as connection:
            check_target(connection, profile)

    def transitions(self, profile_id: int) -> builtins.list[ProfileTransition]:
        """Return every move of a profile, oldest first; empty if it is unknown."""
        table = ProfileTransitionTable
        query = select(table).where(table.profile_id == profile_id).order_by(table.id)
        with self.database.read() as connection:
            rows = connection.execute(query).mappings()
            return [to_record(ProfileTransition, row) for row in rows]

    def verifications(self, profile_id: int) -> builtins.list[ProfileVerification]:
        """Return every repeated measurement of a profile, oldest first."""
        table = ProfileVerificationTable
        query = select(table).where(table.profile_id == profile_id).order_by(table.id)
        with self.database.read() as connection:
            rows = connection.execute(query).mappings()
            return [to_record(ProfileVerification, row) for row in rows]

    def _locked(self, connection: Connection, profile_id: int) -> SkipProfile:
        """Return a profile whose key no other transaction changes until this one ends."""
        row = connection.execute(_by_id(profile_id)).mappings().first()
        if row is None:
            raise unknown_profile(profile_id)
        lock_key(self.database, connection, to_record(SkipProfile, row))
        return to_record(SkipProfile, connection.execute(_by_id(profile_id)).mappings().one())

    def _move(
        self, connection: Connection, profile: SkipProfile, status: ProfileStatus, cause: Cause
    ) -> SkipProfile:
        if profile.status == status:
            return profile
        check_move(profile, status)
        if cause.run_id is not None:
            require_run(connection, cause.run_id)
        if status == "active":
            check_target(connection, profile)
            check_held(connection, profile)
            retire_active(connection, profile, cause)
        return set_status(connection, profile, status, cause)

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
        conditions = filter_conditions(domain=domain, target=target, drafter=drafter, status=status)
        query = select(SkipProfileTable).where(*conditions).order_by(SkipProfileTable.id.desc())
        return read_page(self.database, SkipProfile, query, limit, offset)

    def count(
        self,
        domain: str | None = None,
        target: str | None = None,
        drafter: str | None = None,
        status: ProfileStatus | None = None,
    ) -> int:
        """Return how many profiles match every filter given."""
        conditions = filter_conditions(domain=domain, target=target, drafter=drafter, status=status)
        return count_rows(self.database, SkipProfileTable, conditions)

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
        query, asked = question(target, domain, drafter, dtype)
        with self.database.read() as connection:
            row = connection.execute(query, asked).mappings().first()
            if row is not None:
                return to_record(SkipProfile, row)
        raise ProfileNotFoundError(
            not_found_text(
                {"target": target, "domain": domain, "drafter": drafter, "dtype": dtype},
                self.closest(target, domain, drafter, dtype),
            )
        )

    def active_name(
        self, target: str, domain: str, drafter: str | None = None, dtype: str | None = None
    ) -> tuple[int, str] | None:
        """Return id and run of the profile that `resolve` would answer with, None without one.

        Together they name one version for good, and asking for them alone is cheap.
        """
        query, asked = question(target, domain, drafter, dtype, is_short=True)
        with self.database.read() as connection:
            row = connection.execute(query, asked).first()
            return None if row is None else (row[0], row[1])

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
        return closest_first(asked, [(row["id"], to_record(ProfileKey, row)) for row in rows])


def _by_id(profile_id: int) -> Select[Any]:
    return select(SkipProfileTable).where(SkipProfileTable.id == profile_id)


def _published(profile: SkipProfile) -> Select[Any]:
    natural = {**key_values(profile), "run_id": profile.run_id, "skip": profile.skip}
    return select(SkipProfileTable).where(*matching(SkipProfileTable, **natural))
