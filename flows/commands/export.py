"""`specdec runs export`: a stored benchmark as files, to keep beside code or to send."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.text import Text

from db.schemas import RunRecord
from db.store import Store
from flows.benchmark_tables import benchmark_tables, headline
from flows.commands.output import emit
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, RunNotFoundError
from tasks.benchmark_report import BenchmarkReport
from tasks.plots import plot_report

# What of a run's provenance is about code; the rest is about one machine and process.
_CODE = ("commit", "is_dirty", "code_version", "python", "platform", "packages")


def export_run(args: Namespace) -> int:
    """Write the tables of a finished benchmark to one JSON file, and draw its plots in a folder."""
    if args.tables is None and args.plots is None:
        raise ConfigError("nothing to export: give --tables FILE, --plots FOLDER or both")
    with Store.open(Settings().resolved_database_url) as store:
        run = _finished(store, args.id)
        report = _report(run)
    written = []
    if args.tables is not None:
        written.append(_write_tables(run, report, Path(args.tables).expanduser()))
    if args.plots is not None:
        written += plot_report(report, Path(args.plots).expanduser())
    names = [str(path) for path in written]
    emit(args, {"run_id": run.id, "files": names}, lambda: Text("\n".join(names)))
    return 0


def benchmark_document(run: RunRecord, report: BenchmarkReport) -> dict[str, Any]:
    """Return the tables of a benchmark with their origin, in the form of our result files."""
    hardware = dict.fromkeys(cell.hardware for cell in report.cells if cell.hardware)
    return {
        "benchmark": run.name,
        "figures": {
            "headline": headline(report),
            "config": report.config.model_dump(mode="json"),
            "notes": list(report.notes),
            "tables": {
                view.title: {
                    "columns": view.columns,
                    "rows": [" | ".join(row) for row in view.rows],
                }
                for view in benchmark_tables(report)
            },
        },
        "hardware": ", ".join(hardware),
        "finished_at": run.updated_at.isoformat(timespec="seconds"),
        "provenance": {name: run.provenance.get(name) for name in _CODE},
    }


def _finished(store: Store, run_id: str) -> RunRecord:
    run = store.runs.get(run_id)
    if run is None:
        raise RunNotFoundError(f"there is no run {run_id!r}: `specdec runs list` shows the stored")
    if run.status != "completed":
        raise ConfigError(
            f"run {run_id} is {run.status}, and only completed ones have a result: run the same "
            "benchmark again, it goes on with what is stored"
        )
    return run


def _report(run: RunRecord) -> BenchmarkReport:
    try:
        return BenchmarkReport.model_validate(run.summary)
    except ValidationError as error:
        raise ConfigError(
            f"run {run.id} is a {run.kind} run, and only benchmarks can be exported: "
            "`specdec runs show` prints any run whole"
        ) from error


def _write_tables(run: RunRecord, report: BenchmarkReport, path: Path) -> Path:
    """Write by temporary name and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f"{path.suffix}.part")
    temporary.write_text(json.dumps(benchmark_document(run, report), indent=1) + "\n")
    temporary.replace(path)
    return path
