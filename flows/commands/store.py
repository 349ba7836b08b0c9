"""`specdec profiles`, `runs` and `sync`: what is stored."""

from __future__ import annotations

from argparse import Namespace

from rich.console import Group, RenderableType
from rich.pretty import Pretty
from rich.text import Text

from db.schemas import RunRecord, SkipProfile
from db.store import Store
from flows.commands.output import emit, note, table
from specdec_core.config.settings import Settings
from specdec_core.errors import ProfileNotFoundError, RunNotFoundError


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
    emit(args, profiles, lambda: _profile_table(profiles))
    return 0


def show_profile(args: Namespace) -> int:
    """Show one profile with its evidence."""
    with _open_store() as store:
        profile = store.profiles.get(args.id)
    if profile is None:
        raise ProfileNotFoundError(
            f"there is no profile {args.id}: `specdec profiles list` shows what is stored"
        )
    emit(args, profile, lambda: _profile_detail(profile))
    return 0


def resolve_profile(args: Namespace) -> int:
    """Show the active profile of a target and domain."""
    with _open_store() as store:
        profile = store.profiles.resolve(args.target, args.domain, args.drafter, args.dtype)
    emit(args, profile, lambda: _profile_detail(profile))
    return 0


def list_runs(args: Namespace) -> int:
    """Show stored runs, newest first."""
    with _open_store() as store:
        runs = store.runs.list(kind=args.kind, status=args.status, limit=args.limit)
    emit(args, runs, lambda: _run_table(runs))
    return 0


def show_run(args: Namespace) -> int:
    """Show one run with its configuration, provenance and result."""
    with _open_store() as store:
        run = store.runs.get(args.id)
    if run is None:
        raise RunNotFoundError(
            f"there is no run {args.id!r}: `specdec runs list` shows what is stored"
        )
    emit(args, run, lambda: Pretty(run.model_dump(mode="json"), expand_all=True))
    return 0


def sync(args: Namespace) -> int:
    """Send what MLflow missed to MLflow."""
    from tasks.sinks import sync_runs  # importing MLflow takes seconds

    settings = Settings()
    with _open_store() as store:
        report = sync_runs(store, settings, note)
    emit(args, report, lambda: Text(f"{report.num_sent} runs sent to MLflow"))
    return 0


def _open_store() -> Store:
    return Store.open(Settings().resolved_database_url)


def _profile_table(profiles: list[SkipProfile]) -> RenderableType:
    rows = [
        (
            p.id,
            p.status,
            p.domain,
            p.target,
            p.drafter,
            p.skip or "dense (no gain)",
            f"{p.heldout.speedup.estimate:.3f}x" if p.heldout else None,
            f"{p.created_at:%Y-%m-%d %H:%M}",
        )
        for p in profiles
    ]
    columns = ("id", "status", "domain", "target", "drafter", "skip", "speed-up", "created, UTC")
    return table(f"{len(rows)} profiles", columns, rows)


def _profile_detail(profile: SkipProfile) -> RenderableType:
    return Group(_profile_table([profile]), Pretty(profile.model_dump(mode="json")))


def _run_table(runs: list[RunRecord]) -> RenderableType:
    rows = [
        (run.id, run.kind, run.name, run.status, f"{run.created_at:%Y-%m-%d %H:%M}", run.error)
        for run in runs
    ]
    return table(
        f"{len(rows)} runs", ("id", "kind", "name", "status", "started, UTC", "error"), rows
    )
