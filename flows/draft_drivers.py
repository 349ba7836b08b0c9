"""Joins settings, store, workers and tracker to the drivers that train drafts.

Apart from `flows.drivers`, because what trains loads torch when it is imported.
"""

from __future__ import annotations

from functools import partial

from db.store import Store
from flows.exports import write_run_files
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import LossComparisonConfig, TrainingRunConfig
from tasks.compare_losses import compare_losses
from tasks.draft_runs import run_training
from tasks.evaluator import ModelEvaluatorFactory
from tasks.jobs import StopCheck
from tasks.loss_report import LossReport
from tasks.pool import pool_factory
from tasks.report import OnProgress
from tasks.runtime import LogLine
from tasks.sinks import open_tracker
from tasks.training_report import TrainingReport
from tasks.training_setup import TrainingSetup


def train(
    config: TrainingRunConfig | LossComparisonConfig,
    settings: Settings,
    *,
    log: LogLine,
    progress: OnProgress,
    flow_run_id: str | None = None,
    should_stop: StopCheck = lambda: False,
    is_inline: bool = False,
) -> TrainingReport | LossReport:
    """Train one draft, or the same one under several losses, with the store of `settings`.

    Args:
        config: What to train.
        settings: Where things run and are kept.
        log: Takes lines for the user.
        progress: Takes a record after every shard, step and measurement.
        flow_run_id: The orchestrator's run.
        should_stop: Once true, the work ends as cancelled.
        is_inline: Whether data and trainings are made in this process, without Ray.

    Raises:
        ConfigError: if something cannot be used.
        SpecDecError: if it fails; what was finished is stored.
    """
    with Store.open(settings.resolved_database_url) as store:
        setup = TrainingSetup(
            settings=settings,
            store=store,
            start_pool=pool_factory(settings, ModelEvaluatorFactory(settings)),
            make_tracker=partial(open_tracker, settings),
            log=log,
            progress=progress,
            should_stop=should_stop,
            flow_run_id=flow_run_id,
            is_inline=is_inline,
            write_files=write_run_files,
        )
        if isinstance(config, LossComparisonConfig):
            return compare_losses(config, setup)
        return run_training(config, setup)
