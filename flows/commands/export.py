"""`specdec runs export` and `compare`: stored runs as files, to keep beside code or to send."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from rich.console import Group
from rich.text import Text

from db.store import Store
from flows.commands.options import path_of
from flows.commands.output import emit
from flows.exports import Export, export_of
from flows.joint_tables import joint_export, joint_tables
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from tasks.joint import read_joint
from tasks.plot_style import write_plots
from tasks.run_files import slug
from tasks.stored import finished_run


def export_runs(args: Namespace) -> int:
    """Write finished runs to files: whole ones, or the tables or plots of one where asked."""
    if args.tables is None and args.plots is None and args.to is None:
        raise ConfigError("nothing to export: give --to FOLDER, --tables FILE or --plots FOLDER")
    if len(args.ids) > 1 and (args.tables or args.plots):
        raise ConfigError("--tables and --plots take one run: give --to FOLDER for several")
    if args.name is not None and len(args.ids) > 1:
        raise ConfigError("--name is the stem of one run's files: give one run")
    places = {
        name: path_of(given, f"--{name}")
        for name in ("tables", "plots", "to")
        if (given := getattr(args, name)) is not None
    }
    with Store.open(Settings().resolved_database_url) as store:
        exports = [export_of(store, finished_run(store, run_id)) for run_id in args.ids]
    if args.name is not None:
        exports = [replace(export, name=slug(args.name)) for export in exports]
    _check_names(exports)
    if "to" in places:
        for export in exports:
            export.check_free(places["to"])
    written: list[Path] = []
    for export in exports:
        if "tables" in places:
            written.append(export.write_tables(places["tables"]))
        if "plots" in places:
            written += write_plots(export.plots, places["plots"])
        if "to" in places:
            written += export.write(places["to"])
    names = [str(path) for path in written]
    found = {"run_ids": args.ids, "files": names}
    emit(args, found, lambda: Text("\n".join(names)))
    return 0


def compare_runs(args: Namespace) -> int:
    """Show finished runs beside each other, and write the joint tables and figures if asked."""
    folder = None if args.to is None else path_of(args.to, "--to")
    with Store.open(Settings().resolved_database_url) as store:
        joint = read_joint(store, args.ids)
    tables = [table for _, table in joint_tables(joint)]
    files: list[Path] = []
    if folder is not None:
        files = joint_export(joint, args.name).write(folder)
    names = [str(path) for path in files]
    found = {
        "run_ids": args.ids,
        "tables": {table.title: table.to_records() for table in tables},
        "files": names,
    }
    emit(args, found, lambda: Group(*(table.to_rich() for table in tables), *map(Text, names)))
    return 0


def _check_names(exports: list[Export]) -> None:
    """Refuse to write two runs over each other."""
    names = [export.name for export in exports]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two of these runs would be written as {name!r}: export one of them by itself "
                "with --name"
            )
