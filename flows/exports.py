"""Stored runs as files: one JSON document, one Markdown page and plots, to keep beside code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from db.schemas import RunRecord
from db.store import Store
from flows.benchmark_tables import benchmark_markdown, benchmark_tables, headline
from flows.loss_tables import loss_markdown, loss_tables
from flows.report import front_table, level_tables, whole_markdown
from flows.search_tables import (
    ablation_table,
    case_count_table,
    control_table,
    result_table,
)
from flows.sweep_tables import sweep_markdown, sweep_tables
from flows.training_tables import training_markdown, training_tables
from flows.views import TableView
from specdec_core.errors import ConfigError
from tasks.benchmark_report import BenchmarkReport
from tasks.loss_report import LossReport
from tasks.plot_style import Plot, write_plots
from tasks.plots import benchmark_plots
from tasks.report import SearchReport
from tasks.run_files import slug, write_text
from tasks.search_plots import search_plots, sweep_plots
from tasks.stored import Report, read_report
from tasks.sweep_report import SweepReport
from tasks.training_plots import loss_plots, training_plots
from tasks.training_report import TrainingReport

# What of a run's provenance is about code; the rest is about one machine and process.
_CODE = ("commit", "is_dirty", "code_version", "python", "platform", "packages")
_PATH = re.compile(r"(?<![^\s:=@,'\"(])(?:~|/(?!/))[^\s,#'\")]*/[^\s,#'\")]+")
"""An absolute path, also behind the colon of a reference or the equals sign of an option."""


_SUBJECTS: Mapping[type, str] = {
    BenchmarkReport: "benchmark",
    TrainingReport: "training",
    LossReport: "comparison",
}


@dataclass(frozen=True, slots=True)
class Export:
    """One or several runs, ready to be written; nothing in it names a path of this machine."""

    name: str
    document: Mapping[str, Any]
    markdown: str
    plots: tuple[Plot, ...]

    def write(self, folder: Path) -> list[Path]:
        """Write NAME.json, NAME.md and plots in a folder NAME below `folder`; return the files."""
        return self._write(folder, self.name, self.name)

    def check_free(self, folder: Path) -> None:
        """Check that `write` would write over nothing but an earlier export of the same run.

        Raises:
            ConfigError: if the name is taken; names by what.
        """
        path = folder / f"{self.name}.json"
        if not path.is_file():
            return
        own = json.loads(json.dumps(self.document))  # lists for tuples, as in the file
        try:
            found = json.loads(path.read_text())
            owner = found.get("run_id")
            is_same_config = found["figures"].get("config") == own["figures"].get("config")
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"{path} is no export of a run: remove it, or name another folder"
            ) from error
        # Exports of older versions do not name their run.
        if owner != own["run_id"] and not (owner is None and is_same_config):
            raise ConfigError(
                f"{path} is the export of {owner or 'a run with another configuration'}, and run "
                f"{own['run_id']} has the same name: give it another with --name, or remove that "
                "file"
            )

    def write_tables(self, path: Path) -> Path:
        """Write the JSON document to a file."""
        return write_text(path, json.dumps(self.document, indent=1) + "\n")

    def _write(self, folder: Path, stem: str, plots: str) -> list[Path]:
        drawn = write_plots(self.plots, folder / plots)
        links = [f"![{path.stem}]({PurePath(plots, path.name)})" for path in drawn]
        text = "\n\n".join([self.markdown, *links]) + "\n"
        document = self.write_tables(folder / f"{stem}.json")
        return [document, write_text(folder / f"{stem}.md", text), *drawn]

    def write_run_files(self, folder: Path) -> list[Path]:
        """Write report.json, report.md and plots into the folder of a run; return the files."""
        return self._write(folder, "report", "")


def write_run_files(store: Store, run: RunRecord, folder: Path) -> list[Path]:
    """Write what a completed run has to show into its folder; return the files."""
    return export_of(store, run).write_run_files(folder)


def export_of(store: Store, run: RunRecord) -> Export:
    """Return a completed run as files.

    Raises:
        ConfigError: if it is no search, sweep, benchmark, training or comparison of losses.
    """
    report = read_report(run)
    markdown, plots = _shown(report)
    exported = (run.summary.get("checkpoint") or {}).get("exports")
    told = [run.summary.get(name) for name in ("log_file", "notes")]
    places = local_places([run.config, *told, exported])
    document = {
        _SUBJECTS.get(type(report), "search"): run.name,
        **({} if isinstance(report, BenchmarkReport) else {"kind": run.kind}),
        "run_id": run.id,
        "figures": _figures(report),
        "hardware": ", ".join(_hardware(store, run, report)),
        "finished_at": run.updated_at.isoformat(timespec="seconds"),
        "provenance": {name: run.provenance.get(name) for name in _CODE},
    }
    target = str(_target(report)).rpartition(":")[2]
    name = slug(f"{run.kind}-{run.name}-{PurePath(target).name}")
    return Export(name, portable(document, places), portable(markdown, places), tuple(plots))


def local_places(value: Any) -> tuple[str, ...]:
    """Return the absolute paths that plain data such as a configuration names, longest first."""
    found = {match for text in _texts(value) for match in _PATH.findall(text)}
    return tuple(sorted(found, key=lambda place: (-len(place), place)))


def portable(value: Any, places: Sequence[str]) -> Any:
    """Return plain data with every one of `places` cut down to its last part."""
    if isinstance(value, str):
        for place in places:
            value = value.replace(place, PurePath(place).name)
        return value
    if isinstance(value, Mapping):
        return {name: portable(each, places) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [portable(each, places) for each in value]
    return value


def plain_table(view: TableView) -> dict[str, Any]:
    """Return a table as data: a row per line of the file, so that differences can be read."""
    rows = [" | ".join(cell.replace("|", "/") for cell in row) for row in view.rows]
    return {"columns": list(view.columns), "rows": rows}


def _shown(report: Report) -> tuple[str, Iterator[Plot]]:
    if isinstance(report, SearchReport):
        return whole_markdown(report), search_plots(report)
    if isinstance(report, SweepReport):
        return sweep_markdown(report), sweep_plots(report)
    if isinstance(report, TrainingReport):
        return training_markdown(report), training_plots(report)
    if isinstance(report, LossReport):
        return loss_markdown(report), loss_plots(report)
    return benchmark_markdown(report), benchmark_plots(report)


def _figures(report: Report) -> dict[str, Any]:
    if isinstance(report, SearchReport):
        # What tables hold, and what is of this machine or of this store alone, is left out.
        left_out = {"run_id", "log_file", "study", "levels", "ablation", "front"}
        kept = {"is_dense", "reason", "skip", "status"}
        figures = report.model_dump(mode="json", exclude=left_out)
        figures["profile"] = {name: figures["profile"][name] for name in sorted(kept)}
        return figures | {"tables": _named(_search_tables(report))}
    if isinstance(report, SweepReport):
        figures = report.model_dump(mode="json", exclude={"run_id", "log_file"})
        return figures | {"tables": _named(sweep_tables(report))}
    if isinstance(report, TrainingReport | LossReport):
        return _training_figures(report)
    return {
        "headline": headline(report),
        "config": report.config.model_dump(mode="json"),
        "notes": list(report.notes),
        "tables": {view.title: plain_table(view) for view in benchmark_tables(report)},
    }


def _training_figures(report: TrainingReport | LossReport) -> dict[str, Any]:
    """Tables and set-up; where files lie, and every step of every prompt, stays in the store."""
    common = {"headline": report.headline, "config": report.config.model_dump(mode="json")}
    if isinstance(report, LossReport):
        kept = {"target", "draft", "rates", "cells", "changes"}
        figures = report.model_dump(mode="json", include=kept)
        curves = [each.model_dump(mode="json") for each in report.length_curves]
        shown = {"notes": list(report.all_notes), "curves": curves}
        return {**common, **figures, **shown, "tables": _named(loss_tables(report))}
    one = report.checkpoint
    origin = {
        "data_key": report.data.key,
        "template_hash": report.data.template_hash,
        "training_key": report.training_key,
        "content_hash": one.content_hash,
        "target_identity": one.target_identity,
        "lineage": dict(report.outcome.lineage),
    }
    return {**common, "origin": origin, "tables": _named(training_tables(report))}


def _search_tables(report: SearchReport) -> Iterator[tuple[str, TableView]]:
    yield "results", result_table([report])
    yield "cases", case_count_table([report])
    yield "negative control", control_table([report])
    yield "front", front_table(report)
    yield "single units", ablation_table(report)
    for level, view in zip(report.levels, level_tables(report), strict=True):
        yield f"level {level.number}", view


def _named(views: Iterable[tuple[str, TableView]]) -> dict[str, Any]:
    return {name: {"title": view.title, **plain_table(view)} for name, view in views}


def _hardware(store: Store, run: RunRecord, report: Report) -> list[str]:
    """Where seconds were measured, each once."""
    if isinstance(report, TrainingReport):
        found = [report.hardware]
    elif isinstance(report, LossReport):
        ids = [each.run_id for each in report.trainings if each.run_id is not None]
        runs = [store.runs.get(run_id) for run_id in ids]
        found = [str(each.summary.get("hardware", "")) for each in runs if each is not None]
    elif isinstance(report, BenchmarkReport):
        found = [cell.hardware for cell in report.cells]
    else:
        found = [row.hardware for _, _, row in store.runs.evaluations(run.id)]
    return list(dict.fromkeys(filter(None, found)))


def _target(report: Report) -> str:
    return report.config.target if isinstance(report, BenchmarkReport) else report.target


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
