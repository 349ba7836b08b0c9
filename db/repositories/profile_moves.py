"""What changes profiles inside one transaction: versions, moves, measurements."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, func, insert, select, update

from db.clock import utc_now
from db.engine import Database
from db.lifecycle import PUBLISHED_AS, Cause, ProfileVerification
from db.models import (
    PROFILE_KEY,
    ProfileTransitionTable,
    ProfileVerificationTable,
    SkipProfileTable,
    TargetTable,
)
from db.repositories.common import matching, storable_message, to_record
from db.schemas import ProfileStatus, SkipProfile
from specdec_core.errors import ConfigError, ProfileNotFoundError, StoreError

logger = logging.getLogger(__name__)


def key_values(profile: SkipProfile) -> dict[str, str]:
    """Return the columns under which at most one version is active."""
    return {name: getattr(profile, name) for name in PROFILE_KEY}


def lock_key(database: Database, connection: Connection, profile: SkipProfile) -> None:
    """Let one transaction at a time change the versions of a key."""
    database.lock(connection, f"profile {key_values(profile)}")


def unknown_profile(profile_id: int) -> ProfileNotFoundError:
    """Return the error that says a profile is not stored."""
    return ProfileNotFoundError(
        f"there is no profile {profile_id}: `specdec profiles list` shows what is stored"
    )


def insert_version(
    database: Database, connection: Connection, profile: SkipProfile, cause: Cause
) -> SkipProfile:
    """Store a profile as the next version of its key, with the moves up to its status."""
    conditions = matching(SkipProfileTable, **key_values(profile))
    latest = select(func.max(SkipProfileTable.version)).where(*conditions)
    version = (connection.execute(latest).scalar() or 0) + 1
    if profile.status == "active":
        retire_active(connection, profile, cause, version)
    values = profile.model_dump(exclude={"id", "version", "selection", "heldout"})
    values["selection"] = profile.selection.model_dump(mode="json")
    values["heldout"] = profile.heldout and profile.heldout.model_dump(mode="json")
    statement = (
        database.insert(SkipProfileTable)
        .values(version=version, **values)
        .returning(SkipProfileTable)
    )
    stored = to_record(SkipProfile, connection.execute(statement).mappings().one())
    former: ProfileStatus | None = None
    for status in PUBLISHED_AS[profile.status]:
        _note(connection, stored, former, status, cause)
        former = status
    logger.info(
        "profile %s: version %s of %s is %s", stored.id, version, stored.domain, stored.status
    )
    return stored


def unchanged(connection: Connection, stored: SkipProfile, given: SkipProfile) -> SkipProfile:
    """Return a version that its run published before, if it was published as `given` says.

    Raises:
        StoreError: if the version never had the status of `given`.
    """
    table = ProfileTransitionTable
    query = select(table.to_status).where(table.profile_id == stored.id).order_by(table.id)
    passed = connection.execute(query).scalars().all()
    if given.status not in (*passed, stored.status):
        raise StoreError(
            f"run {stored.run_id!r} published skip set {stored.skip!r} as {stored.status} before "
            f"(profile {stored.id}) and now as {given.status}: publish it from a new run"
        )
    logger.info("profile %s is published already, nothing written", stored.id)
    return stored


def retire_active(
    connection: Connection, successor: SkipProfile, cause: Cause, version: int | None = None
) -> None:
    """Retire the active version of the key of `successor`, if there is one."""
    conditions = matching(SkipProfileTable, **key_values(successor), status="active")
    row = connection.execute(select(SkipProfileTable).where(*conditions)).mappings().first()
    if row is not None:
        reason = f"version {version or successor.version} became active"
        retired = cause.model_copy(update={"reason": reason})
        set_status(connection, to_record(SkipProfile, row), "retired", retired)


def set_status(
    connection: Connection, profile: SkipProfile, status: ProfileStatus, cause: Cause
) -> SkipProfile:
    """Write a move that is known to be allowed, and its record."""
    statement = (
        update(SkipProfileTable)
        .where(SkipProfileTable.id == profile.id)
        .values(status=status)
        .returning(SkipProfileTable)
    )
    moved = to_record(SkipProfile, connection.execute(statement).mappings().one())
    _note(connection, profile, profile.status, status, cause)
    logger.info("profile %s: %s -> %s: %s", profile.id, profile.status, status, cause.reason)
    return moved


def check_held(connection: Connection, profile: SkipProfile) -> None:
    """Check that a profile held when it was measured last.

    Raises:
        ConfigError: if it did not.
    """
    table = ProfileVerificationTable
    latest = select(table).where(table.profile_id == profile.id).order_by(table.id.desc())
    row = connection.execute(latest.limit(1)).mappings().first()
    if row is not None and not row["holds"]:
        raise ConfigError(
            f"profile {profile.id} did not hold when it was measured last ({row['created_at']:%F}: "
            f"{row['reason']}): `specdec profiles verify {profile.id}` measures it again"
        )


def check_target(connection: Connection, profile: SkipProfile) -> None:
    """Check that a profile is for the target that its reference means, as far as is known.

    Raises:
        ConfigError: for an identity that the store has never seen, another revision, or another
            layer count.
    """
    what = f"profile {profile.id}" if profile.id is not None else "the profile"
    identity = profile.target_identity[:12]
    table = TargetTable
    query = select(table.identity, table.seen_at).where(table.reference == profile.target)
    named = connection.execute(query.order_by(table.seen_at.desc()).limit(1)).first()
    if named is not None and named.identity != profile.target_identity:
        raise ConfigError(
            f"{what} is for identity {identity} of {profile.target}, which has identity "
            f"{named.identity[:12]} since {named.seen_at:%F}: it is another revision, search again "
            "on this one"
        )
    layers = select(table.num_layers).where(table.identity == profile.target_identity)
    num_layers = connection.execute(layers).scalar()
    if num_layers is None:
        raise ConfigError(
            f"{what} is for target identity {identity}, which this store has never seen: "
            "`specdec profiles verify` or `import` on a machine with the model makes it known"
        )
    if num_layers != profile.num_layers:
        raise ConfigError(
            f"{what} is for {profile.num_layers} layers, and target {profile.target} has "
            f"{num_layers}: it is for another model, search again on this one"
        )


def insert_verification(
    database: Database, connection: Connection, verification: ProfileVerification
) -> ProfileVerification:
    """Store a repeated measurement, once per run."""
    table = ProfileVerificationTable
    values = verification.model_dump(exclude={"id", "heldout"})
    values["heldout"] = verification.heldout and verification.heldout.model_dump(mode="json")
    statement = database.insert(table).values(values).on_conflict_do_nothing()
    connection.execute(statement)
    query = select(table).where(table.run_id == verification.run_id)
    return to_record(ProfileVerification, connection.execute(query).mappings().one())


def _note(
    connection: Connection,
    profile: SkipProfile,
    former: ProfileStatus | None,
    status: ProfileStatus,
    cause: Cause,
) -> None:
    values = {
        **cause.model_dump(),
        "reason": storable_message(cause.reason),
        "profile_id": profile.id,
        "from_status": former,
        "to_status": status,
        "created_at": utc_now(),
    }
    connection.execute(insert(ProfileTransitionTable).values(values))
