"""`specdec calibrate` and `specdec bench`: measurements in this process, without services."""

from __future__ import annotations

from argparse import Namespace

from rich.console import Group, RenderableType
from rich.text import Text

from db.schemas import CalibrationRecord
from flows import drivers
from flows.commands.options import given_flags
from flows.commands.output import emit
from flows.commands.progress import ProgressDisplay
from flows.measurements import (
    cell_table,
    curve_table,
    difference_table,
    headline,
    layer_table,
    regression_table,
)
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.build import build_config
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.settings import Settings
from tasks.benchmark import KIND, BenchmarkReport
from tasks.calibration import calibration_config


def calibrate(args: Namespace) -> int:
    """Measure a target and show its step-time curve and layers."""
    config = calibration_config(args.domain, given_flags(args, CalibrationConfig, {"domain"}))
    with ProgressDisplay() as display:
        record = drivers.calibrate(
            config,
            Settings(),
            log=display.say,
            progress=display.follow,
        )
    emit(args, record, lambda: render_calibration(record))
    return 0


def bench(args: Namespace) -> int:
    """Measure a grid of methods and domains; exit code 1 if a figure fell below its baseline."""
    config = build_config(BenchmarkConfig, {}, given_flags(args, BenchmarkConfig))
    with ProgressDisplay() as display:
        report = drivers.benchmark(
            config,
            Settings(),
            log=display.say,
            progress=display.follow,
            kind=KIND,
        )
    emit(args, report, lambda: render_benchmark(report))
    return 1 if report.regressions else 0


def render_calibration(record: CalibrationRecord) -> RenderableType:
    """Return a calibration for the terminal."""
    return Group(curve_table(record).to_rich(), layer_table(record).to_rich())


def render_benchmark(report: BenchmarkReport) -> RenderableType:
    """Return a benchmark for the terminal."""
    parts: list[RenderableType] = [cell_table(report).to_rich()]
    differences = difference_table(report)
    if differences.rows:
        parts.append(differences.to_rich())
    if report.regressions:
        parts.append(regression_table(report).to_rich())
    lines = [
        headline(report),
        *report.notes,
        f"run: {report.run_id}, {report.num_memoised} evaluations answered from the store",
    ]
    return Group(*parts, *(Text(line) for line in lines))
