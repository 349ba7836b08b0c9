"""`specdec runs` and `sync`: what is stored."""

from __future__ import annotations

from argparse import Namespace

from rich.console import RenderableType
from rich.pretty import Pretty
from rich.text import Text

from db.schemas import RunRecord
from db.store import Store
from flows.commands.output import emit, note, table
from specdec_core.config.settings import Settings
from specdec_core.errors import RunNotFoundError


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


def _run_table(runs: list[RunRecord]) -> RenderableType:
    rows = [
        (run.id, run.kind, run.name, run.status, f"{run.created_at:%Y-%m-%d %H:%M}", run.error)
        for run in runs
    ]
    return table(
        f"{len(rows)} runs", ("id", "kind", "name", "status", "started, UTC", "error"), rows
    )
