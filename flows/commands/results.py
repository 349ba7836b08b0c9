"""Finds and draws the stored result of a flow run."""

from __future__ import annotations

from pydantic import ValidationError
from rich.console import RenderableType
from rich.pretty import Pretty

from db.schemas import CalibrationRecord, RunRecord
from db.store import Store
from flows.commands.measure import render_benchmark, render_calibration
from flows.report import links, render
from flows.services.state import running_state
from flows.sweep_tables import render_sweep
from flows.training_render import render_losses, render_training
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from tasks.loss_report import LOSS_KIND, LossReport
from tasks.report import SearchReport
from tasks.stored import read_report
from tasks.sweep_report import SweepReport
from tasks.training_report import TrainingReport


def find_run(settings: Settings, flow_run_id: str) -> RunRecord | None:
    """Return the stored run of a Prefect flow run, None if it has not stored one.

    Raises:
        StoreError: if the store cannot be read.
    """
    with Store.open(settings.resolved_database_url) as store:
        found = store.runs.list(flow_run_id=flow_run_id, limit=None)
    # A comparison of losses comes before its trainings, which are newer.
    whole = (run for run in found if run.kind == LOSS_KIND)
    return next(whole, found[0] if found else None)


def render_run(settings: Settings, run: RunRecord) -> RenderableType:
    """Return the result of a finished run for the terminal, unformatted if its shape is unknown."""
    try:
        if run.kind == "calibrate":
            return render_calibration(CalibrationRecord.model_validate(run.summary))
        report = read_report(run)
    except (ConfigError, ValidationError):
        return Pretty(run.summary)
    if isinstance(report, SearchReport):
        return render(report, links(report, running_state(settings.home_dir), run.flow_run_id))
    if isinstance(report, TrainingReport):
        return render_training(report)
    if isinstance(report, LossReport):
        return render_losses(report)
    return render_sweep(report) if isinstance(report, SweepReport) else render_benchmark(report)
