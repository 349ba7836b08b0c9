"""`specdec profiles`: what is stored, moved through its life, measured again, and carried over."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from pydantic import BaseModel
from rich.console import Group, RenderableType
from rich.pretty import Pretty
from rich.text import Text

from db import domain_maps
from db.documents import export_document, read_document
from db.profile_diff import diff_profiles
from db.repositories.profile_moves import unknown_profile
from db.schemas import ProfileStatus, SkipProfile
from db.store import Store
from flows.commands.output import emit, note
from flows.commands.progress import ProgressDisplay
from flows.profile_tables import (
    agreement_table,
    diff_table,
    profile_table,
    transition_table,
    verification_table,
)
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from tasks.run_files import write_text


def list_profiles(args: Namespace) -> int:
    """Show stored profiles, newest first."""
    with _open_store() as store:
        profiles = store.profiles.list(
            domain=args.domain,
            target=args.target,
            drafter=args.drafter,
            status=args.status,
            limit=args.limit,
        )
    emit(args, profiles, lambda: profile_table(profiles).to_rich())
    return 0


def show_profile(args: Namespace) -> int:
    """Show one profile with its evidence."""
    with _open_store() as store:
        profile = _stored(store, args.id)
    emit(args, profile, lambda: _detail(profile))
    return 0


def profile_history(args: Namespace) -> int:
    """Show every version of a key, and the moves and measurements of one of them."""
    with _open_store() as store:
        _stored(store, args.id)
        versions = store.profiles.history(args.id)
        moves = store.profiles.transitions(args.id)
        measured = store.profiles.verifications(args.id)
    document = {"versions": versions, "transitions": moves, "verifications": measured}
    tables = [profile_table(versions), transition_table(args.id, moves)]
    if measured:
        tables.append(verification_table(args.id, measured))
    emit(args, document, lambda: Group(*(table.to_rich() for table in tables)))
    return 0


def diff(args: Namespace) -> int:
    """Show the fields and figures in which two profiles differ."""
    with _open_store() as store:
        found = diff_profiles(_stored(store, args.first), _stored(store, args.second))
    emit(args, found, lambda: diff_table(found).to_rich())
    return 0


def resolve_profile(args: Namespace) -> int:
    """Show the active profile of a target and domain."""
    with _open_store() as store:
        profile = store.profiles.resolve(args.target, args.domain, args.drafter, args.dtype)
    emit(args, profile, lambda: _detail(profile))
    return 0


def activate(args: Namespace) -> int:
    """Make a version the active one of its key."""
    return _move(args, "active", "activated by hand")


def retire(args: Namespace) -> int:
    """Take a version out of service."""
    return _move(args, "retired", "retired by hand")


def verify(args: Namespace) -> int:
    """Measure a profile again; exit code 1 if it does not hold."""
    from flows import drivers  # importing MLflow and Ray takes seconds

    with ProgressDisplay() as display:
        report = drivers.verify_profile(
            args.id,
            Settings(),
            log=display.say,
            progress=display.follow,
            should_stop=args.is_interrupted,
        )
    lines = [report.verification.reason, *report.notes, f"profile {args.id} is {report.status}"]
    table = agreement_table(report.agreements)
    shown = [table.to_rich()] if table.rows else []
    emit(args, report, lambda: Group(*shown, *map(Text, lines)))
    return 0 if report.verification.holds else 1


def export(args: Namespace) -> int:
    """Write one profile with its evidence and origin as a JSON document."""
    with _open_store() as store:
        profile = _stored(store, args.id)
        run = store.runs.get(profile.run_id)
        assert run is not None  # the database holds on to the runs of its profiles
        moves = store.profiles.transitions(args.id)
        document = export_document(profile, run, moves, store.profiles.verifications(args.id))
    if args.to is None:
        emit(args, document, lambda: Text(document.model_dump_json(indent=1)))
        return 0
    path = _write(args.to, document)
    answer = {"file": str(path), "content_hash": document.content_hash}
    emit(args, answer, lambda: Text(f"{path}: profile {args.id}, {document.content_hash[:12]}"))
    return 0


def domain_map(args: Namespace) -> int:
    """Write what every domain of a target and drafter skips, for a server without a database."""
    with _open_store() as store:
        document = domain_maps.domain_map(store, args.target, args.drafter, args.dtype)
    if args.to is None:
        emit(args, document, lambda: Text(document.model_dump_json(indent=1)))
        return 0
    path = _write(args.to, document)
    answer = {"file": str(path), "domains": list(document.domains)}
    emit(args, answer, lambda: Text(f"{path}: {', '.join(document.domains)}"))
    return 0


def import_document(args: Namespace) -> int:
    """Store an exported profile as a candidate."""
    from tasks.profiles import import_profile

    document = read_document(_read(args.file), args.file)
    with _open_store() as store:
        profile = import_profile(document, Settings(), store, target=args.target)
    emit(args, profile, lambda: _detail(profile))
    if profile.status == "candidate":
        note(f"`specdec profiles verify {profile.id}` measures it here, then it can be activated")
    return 0


def _move(args: Namespace, status: ProfileStatus, default_reason: str) -> int:
    from tasks.profiles import present_cause

    with _open_store() as store:
        cause = present_cause(args.reason or default_reason)
        profile = store.profiles.move(args.id, status, cause)
    emit(args, profile, lambda: profile_table([profile]).to_rich())
    return 0


def _stored(store: Store, profile_id: int) -> SkipProfile:
    profile = store.profiles.get(profile_id)
    if profile is None:
        raise unknown_profile(profile_id)
    return profile


def _write(file: str, document: BaseModel) -> Path:
    return write_text(Path(file).expanduser(), document.model_dump_json(indent=1) + "\n")


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read ({error}): give an exported profile") from error


def _open_store() -> Store:
    return Store.open(Settings().resolved_database_url)


def _detail(profile: SkipProfile) -> RenderableType:
    return Group(profile_table([profile]).to_rich(), Pretty(profile.model_dump(mode="json")))
