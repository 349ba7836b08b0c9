"""The training driver: data, training, evaluation in the decode loop, registry and export.

The driver owns every write: results go to the store first, then to the tracker. A stage whose
content key is done is skipped with a line that says so, so that a killed run continues where it
was and a second one answers at once.
"""

from __future__ import annotations

import logging

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import TrainingRunConfig, format_draft, losses_of
from specdec_core.models.reference import resolve_model
from tasks.draft_pipeline import Pipeline
from tasks.draft_stages import Stages
from tasks.jobs import StopCheck
from tasks.pool import PoolFactory
from tasks.report import OnProgress
from tasks.run_files import WriteFiles, leave_files, no_files
from tasks.run_rows import start_run
from tasks.runtime import LogLine, run_files, run_log
from tasks.sinks import NullTracker, Tracker, mirrored_run
from tasks.training_keys import evaluation_key
from tasks.training_mirror import tracked_model, training_metrics
from tasks.training_report import TRAINING_KIND, TrainingReport

logger = logging.getLogger(__name__)


def run_training(
    config: TrainingRunConfig,
    settings: Settings,
    store: Store,
    start_pool: PoolFactory,
    *,
    tracker: Tracker | None = None,
    evaluation_tracker: Tracker | None = None,
    log: LogLine = logger.info,
    progress: OnProgress = lambda _progress: None,
    should_stop: StopCheck = lambda: False,
    flow_run_id: str | None = None,
    is_inline: bool = False,
    stages: Stages | None = None,
    write_files: WriteFiles = no_files,
) -> TrainingReport:
    """Make data, train, evaluate, register and export one draft; return the stored report.

    Args:
        config: The training, its evaluation and whether to export.
        settings: Where things run and are kept.
        store: The open store.
        start_pool: Starts the workers that decode with the draft.
        tracker: Mirror of results, best effort; None mirrors nothing.
        evaluation_tracker: The same for the benchmark runs of the evaluation.
        log: Takes lines for the user.
        progress: Takes a record after every shard, step and measurement.
        should_stop: Once true, workers are stopped and the run ends as cancelled.
        flow_run_id: The orchestrator's run; a retry of it continues the same row.
        is_inline: Whether data and training are made in this process, without Ray.
        stages: What does the work; None for the real ones.
        write_files: Writes report and plots of the finished run into its folder.

    Raises:
        ConfigError: if something cannot be used; nothing is stored if the target cannot be found.
        EvaluationFailedError: if the data cannot be made or the loss is not finite.
        SearchCancelledError: if told to stop.
        StoreError: if a database cannot be used.
        WorkerLostError: if no workers can be had.
    """
    target = resolve_model(config.train.data.target, settings.cache_dir, log)
    if target.licence:
        log(target.licence)
    run = start_run(store, TRAINING_KIND, run_name(config), config, settings, flow_run_id)
    tracker = tracker or NullTracker()
    with (
        mirrored_run(store, run, tracker, run_files(settings, run.id)) as metrics,
        run_log(settings, run.id) as log_file,
    ):
        logger.info("run %s: %s", run.id, run.name)
        pipeline = Pipeline(
            config=config,
            settings=settings,
            store=store,
            start_pool=start_pool,
            run=run,
            tracker=tracker,
            evaluation_tracker=evaluation_tracker,
            log=log,
            progress=progress,
            should_stop=should_stop,
            is_inline=is_inline,
            stages=stages or Stages(),
        )
        report = pipeline.report(str(log_file))
        summary = report.model_dump(mode="json")
        run = store.runs.update(run.id, status="completed", summary=summary, error=None)
        leave_files(write_files, store, run, settings)
        tracker.model(run.id, tracked_model(report))
        metrics |= training_metrics(report)
    log(report.headline)
    return report


def run_name(config: TrainingRunConfig) -> str:
    """Return how a training is called: what tells it from others of the same comparison."""
    train = config.train
    found = (
        f"{losses_of(train)} {format_draft(train.draft)} rate {train.learning_rate:g} "
        f"seed {train.seed}"
    )
    return found if config.evaluate else f"{found} not evaluated"


def stored_report(store: Store, config: TrainingRunConfig, key: str) -> TrainingReport | None:
    """Return the report of the newest completed run of this very training, None without one.

    Args:
        store: The open store.
        config: The training with its evaluation.
        key: Its content key, as data and code are now.
    """
    wanted = config.model_dump(mode="json")
    for run in store.runs.list(kind=TRAINING_KIND, status="completed", limit=None):
        if run.config == wanted and run.summary.get("training_key") == key:
            report = TrainingReport.model_validate(run.summary)
            evaluated = store.checkpoints.find(report.checkpoint.content_hash)
            asked = evaluation_key(config.evaluation, report.checkpoint.content_hash)
            if not config.evaluate or (evaluated and evaluated.evaluation_key == asked):
                return report
    return None
