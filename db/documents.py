"""One profile as a JSON document: schema version, content hash, evidence and origin."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, ValidationError

from db.lifecycle import ProfileTransition, ProfileVerification
from db.schemas import RunRecord, SkipProfile
from specdec_core.config.base import Record
from specdec_core.errors import ConfigError

FORMAT: Literal["specdec-profile"] = "specdec-profile"
SCHEMA_VERSION = 1
IMPORT_KIND = "profile-import"
PLAN_FIELDS = ("selection_ids", "heldout_ids")
"""What of a search's report is needed to measure its profile again."""
EVIDENCE_FIELDS = ("negative_control",)
"""What of it a profile's reader wants to know beside the profile's own figures."""


class ProfileOrigin(Record):
    """Where an exported profile comes from, and how it was measured."""

    run_id: str
    run_kind: str
    config: dict[str, Any] = Field(description="resolved parameters of the run, whole")
    provenance: dict[str, Any] = Field(description="commit, environment, command, data")
    plan: dict[str, Any] = Field(
        description="ids of the items it was chosen and measured on, and its negative control"
    )
    transitions: tuple[ProfileTransition, ...] = ()
    verifications: tuple[ProfileVerification, ...] = ()


class ProfileDocument(Record):
    """An exported profile; the hash covers the profile and its origin."""

    format: Literal["specdec-profile"] = FORMAT
    schema_version: int = SCHEMA_VERSION
    content_hash: str = Field(description="SHA-256 of profile and origin as canonical JSON")
    profile: SkipProfile = Field(description="as stored, with the id and status that it had")
    origin: ProfileOrigin


def export_document(
    profile: SkipProfile,
    run: RunRecord,
    transitions: list[ProfileTransition],
    verifications: list[ProfileVerification],
) -> ProfileDocument:
    """Return a stored profile with everything that another store needs to judge it."""
    origin = ProfileOrigin(
        run_id=run.id,
        run_kind=run.kind,
        config=run.config,
        provenance=run.provenance,
        plan={
            name: run.summary[name]
            for name in (*PLAN_FIELDS, *EVIDENCE_FIELDS)
            if name in run.summary
        },
        transitions=tuple(transitions),
        verifications=tuple(verifications),
    )
    return ProfileDocument(
        content_hash=content_hash(profile.model_dump(mode="json"), origin.model_dump(mode="json")),
        profile=profile,
        origin=origin,
    )


def content_hash(profile: Any, origin: Any) -> str:
    """Return the hash of the two parts of a document, given as JSON values."""
    text = json.dumps({"profile": profile, "origin": origin}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_document(text: str, source: str) -> ProfileDocument:
    """Return the document in `text`, its version and hash checked.

    Args:
        text: What was exported.
        source: Where it is from, for messages.

    Raises:
        ConfigError: if it is no such document, of another version, or was changed.
    """
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source} is no JSON ({error}): give an exported profile") from error
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise ConfigError(
            f"{source} is no exported profile: `specdec profiles export ID` writes one"
        )
    if given.get("schema_version") != SCHEMA_VERSION:
        raise ConfigError(
            f"{source} has schema version {given.get('schema_version')!r}, this version of "
            f"specdec-lab reads {SCHEMA_VERSION}: export it with the same version as here"
        )
    found = content_hash(given.get("profile"), given.get("origin"))
    if found != given.get("content_hash"):
        raise ConfigError(
            f"{source} has content hash {str(given.get('content_hash'))[:12]} written in it and "
            f"{found[:12]} in fact: it was changed or cut after the export, export it again"
        )
    try:
        return ProfileDocument.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"{source}: {place}: {problem['msg']}") from error
