"""`specdec up`, `status`, `down` and `env`."""

from __future__ import annotations

import sys
from argparse import Namespace

from rich.console import Group, RenderableType
from rich.text import Text

from flows.commands.output import emit, note, table
from flows.services import control
from flows.services.control import ServiceReport, StatusReport
from specdec_core.config.settings import Settings


def up(args: Namespace) -> int:
    """Start the services and show their addresses."""
    settings = Settings()
    if args.foreground:
        return control.up_in_foreground(settings, note, args.concurrent_runs)
    report = control.up(settings, note, args.concurrent_runs)
    emit(args, report, lambda: _render(report))
    return 0 if report.is_ready else 1


def status(args: Namespace) -> int:
    """Show every service; exit code 1 unless all of them work."""
    report = control.status(Settings())
    emit(args, report, lambda: _render(report))
    return 0 if report.is_ready else 1


def down(args: Namespace) -> int:
    """End the services."""
    code = control.down(Settings(), note)
    if args.json:
        emit(args, control.status(Settings()), Text)
    return code


def env(args: Namespace) -> int:
    """Print what another shell needs; exit code 1 if no services run."""
    variables = control.environment(Settings())
    if not variables:
        note("no services are running: start them with `specdec up`")
        return 1
    if args.json:
        emit(args, variables, Text)
    else:
        sys.stdout.write(control.export_lines(variables) + "\n")
    return 0


def _render(report: StatusReport) -> RenderableType:
    if not report.services:
        return Text(f"no services are running for {report.home}: start them with `specdec up`")
    rows = [
        (service.title, _condition(service), service.pid, service.address, service.restarts)
        for service in report.services
    ]
    parts: list[RenderableType] = [
        table(
            f"services of {report.home}: {report.phase}",
            ("service", "state", "process", "address", "restarts"),
            rows,
        )
    ]
    lines = [*report.notes, *filter(None, [report.message])]
    if report.environment:
        lines.append(control.client_hint(report))
    return Group(*parts, *(Text(line) for line in lines))


def _condition(service: ServiceReport) -> str:
    if service.is_alive and service.is_answering is False:
        return "not answering"
    return service.status
