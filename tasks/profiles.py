"""Stored profiles outside a search: who changes them, and profiles that come from elsewhere."""

from __future__ import annotations

import getpass
import os
import platform
import shlex
import sys
from collections.abc import Callable

from db.documents import IMPORT_KIND, ProfileDocument
from db.lifecycle import Cause
from db.schemas import SkipProfile, TargetRecord
from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from tasks.prepare import TargetInfo, prepare_target
from tasks.runtime import provenance

TargetLookup = Callable[[str, Settings, str], TargetInfo]
"""Model reference, settings and dtype to what is known of a target; see `prepare_target`."""


def present_cause(reason: str, run_id: str | None = None) -> Cause:
    """Return a cause that names the account, machine and command line of this process."""
    return Cause(
        reason=reason,
        run_id=run_id,
        command=shlex.join(sys.argv),
        actor=f"{_account()}@{platform.node()}",
    )


def import_profile(
    document: ProfileDocument,
    settings: Settings,
    store: Store,
    *,
    target: str | None = None,
    find_target: TargetLookup = prepare_target,
) -> SkipProfile:
    """Store an exported profile as a candidate of the next version of its key, and return it.

    Its target must be the one it was measured on: the same identity and layer count, looked up in
    the store or, where the store has never seen it, in the model itself. Importing a document
    again returns the version stored before.

    Args:
        document: The profile, checked already.
        settings: Where models are cached.
        store: The open store.
        target: Reference of the same model here; default: the one in the document.
        find_target: Looks a model up without loading it.

    Raises:
        ConfigError: if the target here is another revision or another model, or is not found.
        StoreError: if the database cannot be used.
    """
    given = placed = document.profile
    if target is not None or store.targets.get(given.target_identity) is None:
        found = find_target(target or given.target, settings, given.dtype)
        _register(store, given, found)
        placed = given.model_copy(update={"target": found.reference})
    store.profiles.check_target(placed)
    origin = document.origin
    described = {"content_hash": document.content_hash, "run_id": origin.run_id}
    run = store.runs.create(
        IMPORT_KIND,
        given.domain,
        origin.config,
        {**provenance(settings), "origin": {**described, "provenance": origin.provenance}},
        flow_run_id=f"import-{document.content_hash}-{placed.target}",
    )
    summary = {**origin.plan, "document": described}
    store.runs.update(run.id, status="completed", summary=summary, error=None)
    fresh = {"id": None, "version": None, "status": "candidate", "run_id": run.id}
    reason = (
        f"imported: it was {given.status} version {given.version} of run {origin.run_id[:8]}, "
        f"document {document.content_hash[:12]}"
    )
    return store.profiles.publish(placed.model_copy(update=fresh), present_cause(reason, run.id))


def _register(store: Store, profile: SkipProfile, found: TargetInfo) -> None:
    """Make the target of this machine known, if it is the one the profile is for."""
    if found.identity != profile.target_identity:
        raise ConfigError(
            f"the profile is for identity {profile.target_identity[:12]} of {profile.target}, and "
            f"{found.reference} has identity {found.identity[:12]} here: it is another revision or "
            "another model, give the right one with --target, or search again on this one"
        )
    store.targets.put(
        TargetRecord(
            identity=found.identity,
            reference=found.reference,
            kind=found.kind,
            architecture=found.architecture,
            num_layers=found.num_layers,
            license_note=found.license_note,
        )
    )


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's account may have no name
        return str(os.getuid())
