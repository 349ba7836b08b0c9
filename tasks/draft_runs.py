"""The training driver: data, training, evaluation in the decode loop, registry and export.

The driver owns every write: results go to the store first, then to the tracker. A stage whose
content key is done is skipped with a line that says so, so that a killed run continues where it
was and a second one answers at once.
"""

from __future__ import annotations

import logging

from db.store import Store
from specdec_core.config.draft_evaluation import DraftEvaluationConfig
from specdec_core.config.settings import Settings
from specdec_core.config.training import format_draft
from specdec_core.config.training_run import TrainingRunConfig, losses_of
from specdec_core.models.reference import resolve_model
from tasks.draft_pipeline import Pipeline
from tasks.draft_stages import Stages
from tasks.run_rows import start_run
from tasks.runtime import run_files, run_log
from tasks.sinks import mirrored_run
from tasks.training_check import check_training_run
from tasks.training_keys import evaluation_key
from tasks.training_mirror import tracked_model, training_metrics
from tasks.training_report import TRAINING_KIND, TrainingReport
from tasks.training_setup import TrainingSetup

logger = logging.getLogger(__name__)


def run_training(
    config: TrainingRunConfig, setup: TrainingSetup, stages: Stages | None = None
) -> TrainingReport:
    """Make data, train, evaluate, register and export one draft; return the stored report.

    Args:
        config: The training, its evaluation and whether to export.
        setup: Where things run and are kept, and who hears of them.
        stages: What does the work; None for the real ones.

    Raises:
        ConfigError: if something cannot be used; nothing is stored if `check_training_run` says so.
        EvaluationFailedError: if the data cannot be made or the loss is not finite.
        SearchCancelledError: if told to stop.
        StoreError: if a database cannot be used.
        WorkerLostError: if no workers can be had.
    """
    settings, store = setup.settings, setup.store
    target = resolve_model(config.train.data.target, settings.cache_dir, setup.log)
    if target.licence:
        setup.log(target.licence)
    check_training_run(config, target, settings, is_inline=setup.is_inline)
    run = start_run(store, TRAINING_KIND, run_name(config), config, settings, setup.flow_run_id)
    tracker = setup.make_tracker()
    with (
        mirrored_run(store, run, tracker, run_files(settings, run.id)) as metrics,
        run_log(settings, run.id) as log_file,
    ):
        logger.info("run %s: %s", run.id, run.name)
        report = Pipeline(config, setup, stages or Stages(), run, tracker).report(str(log_file))
        setup.complete(run, report)
        tracker.model(run.id, tracked_model(report))
        metrics |= training_metrics(report)
    setup.log(report.headline)
    return report


def run_name(config: TrainingRunConfig) -> str:
    """Return how a training is called: what tells it from others of the same comparison."""
    train = config.train
    found = (
        f"{losses_of(train)} {format_draft(train.draft)} rate {train.learning_rate:g} "
        f"seed {train.seed}"
    )
    return found if config.evaluate else f"{found} not evaluated"


def stored_report(
    store: Store, settings: Settings, config: TrainingRunConfig, key: str
) -> TrainingReport | None:
    """Return the report of the newest completed run of this very training, None without one.

    One whose evaluation has failed cells does not count: they are tried again.

    Args:
        store: The open store.
        settings: Where suites are found, and what an evaluation would run on.
        config: The training with its evaluation.
        key: Its content key, as data and code are now.
    """
    if store.trainings.get(key) is None:
        return None
    asked = config.model_dump(mode="json")
    for run_id in store.runs.ids_of(TRAINING_KIND, run_name(config), asked, "completed"):
        run = store.runs.get(run_id)
        if run is not None and run.summary.get("training_key") == key:
            report = TrainingReport.model_validate(run.summary)
            if not config.evaluate or _is_evaluated(store, settings, config.evaluation, report):
                return report
    return None


def _is_evaluated(
    store: Store, settings: Settings, config: DraftEvaluationConfig, report: TrainingReport
) -> bool:
    """True if the store holds the evaluation of the trained draft that would be made now."""
    if report.evaluation is None or report.evaluation.failed_cells:
        return False
    checkpoint = store.checkpoints.find(report.checkpoint.content_hash)
    asked = evaluation_key(config, report.checkpoint.content_hash, settings)
    return checkpoint is not None and checkpoint.evaluation_key == asked
