"""`specdec calibrate`, `bench` and `verify`: measurements in this process, without services."""

from __future__ import annotations

from argparse import Namespace

from rich.console import Group, RenderableType
from rich.text import Text

from db.schemas import CalibrationRecord
from flows import drivers
from flows.benchmark_tables import benchmark_tables, headline
from flows.commands.options import given_flags
from flows.commands.output import emit
from flows.commands.parser import VERIFY_LEAVES_OUT
from flows.commands.progress import ProgressDisplay
from flows.measurements import curve_table, layer_table
from flows.proof_tables import certificate_table, difference_table, regression_table
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.calibration import CalibrationConfig
from specdec_core.config.presets import benchmark_config
from specdec_core.config.settings import Settings
from tasks.benchmark import KIND
from tasks.benchmark_report import BenchmarkReport
from tasks.calibration import calibration_config

VERIFY_KIND = "verify"


def calibrate(args: Namespace) -> int:
    """Measure a target and show its step-time curve and layers."""
    config = calibration_config(args.domain, given_flags(args, CalibrationConfig, {"domain"}))
    with ProgressDisplay() as display:
        record = drivers.calibrate(
            config,
            Settings(),
            log=display.say,
            progress=display.follow,
            should_stop=args.is_interrupted,
        )
    emit(args, record, lambda: render_calibration(record))
    return 0


def bench(args: Namespace) -> int:
    """Measure a grid of methods and domains.

    Exit code 1 if a figure fell below its baseline or, with ``--verify``, an output is not proven.
    """
    config = benchmark_config(given_flags(args, BenchmarkConfig))
    report = _measure(args, config, KIND)
    emit(args, report, lambda: render_benchmark(report))
    return 0 if report.is_good else 1


def verify(args: Namespace) -> int:
    """Compare a method's outputs with autoregressive ones; exit code 1 unless all is proven."""
    given = given_flags(args, BenchmarkConfig, VERIFY_LEAVES_OUT)
    # Once is enough: nothing is timed against anything.
    fixed = {"methods": [args.method], "verify": True, "repeats": 1}
    report = _measure(args, benchmark_config({**given, **fixed}), VERIFY_KIND)
    emit(args, report, lambda: render_proof(report))
    return 0 if report.is_good else 1


def _measure(args: Namespace, config: BenchmarkConfig, kind: str) -> BenchmarkReport:
    with ProgressDisplay() as display:
        return drivers.benchmark(
            config,
            Settings(),
            log=display.say,
            progress=display.follow,
            should_stop=args.is_interrupted,
            kind=kind,
        )


def render_calibration(record: CalibrationRecord) -> RenderableType:
    """Return a calibration for the terminal."""
    return Group(curve_table(record).to_rich(), layer_table(record).to_rich())


def render_benchmark(report: BenchmarkReport) -> RenderableType:
    """Return a benchmark for the terminal."""
    tables = [table.to_rich() for table in benchmark_tables(report)]
    if report.regressions:
        tables.append(regression_table(report).to_rich())
    return Group(*tables, *_last_lines(report))


def render_proof(report: BenchmarkReport) -> RenderableType:
    """Return what a benchmark proves about outputs for the terminal."""
    tables = (certificate_table(report), difference_table(report))
    failed = [f"{c.domain}, {c.method}: {c.error}" for c in report.cells if c.status == "failed"]
    shown = (table.to_rich() for table in tables if table.rows)
    return Group(*shown, *map(Text, failed), *_last_lines(report))


def _last_lines(report: BenchmarkReport) -> list[RenderableType]:
    lines = [
        headline(report),
        *report.notes,
        *(f"plot: {path}" for path in report.plots),
        f"run: {report.run_id}, {report.num_memoised} evaluations answered from the store",
    ]
    return [Text(line) for line in lines]
