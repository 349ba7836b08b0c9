"""`specdec train` in this process, without any service."""

from __future__ import annotations

from argparse import Namespace

from rich.console import RenderableType

from flows.commands.output import emit
from flows.commands.progress import ProgressDisplay
from flows.training_render import render_losses, render_training
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import COMPARED, FLAT, training_config
from tasks.loss_report import LossReport


def train(args: Namespace) -> int:
    """Train a draft, or compare losses; exit code 1 if a draft was rejected or failed."""
    given = {name: getattr(args, name) for name in (*FLAT, *COMPARED)}
    config = training_config(args.preset, given)
    from flows import draft_drivers  # loads torch

    with ProgressDisplay() as display:
        report = draft_drivers.train(
            config,
            Settings(),
            log=display.say,
            progress=display.follow,
            should_stop=args.is_interrupted,
            is_inline=args.inline,
        )

    def render() -> RenderableType:
        if isinstance(report, LossReport):
            return render_losses(report)
        return render_training(report)

    emit(args, report, render)
    return 0 if report.is_good else 1
