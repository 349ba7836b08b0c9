"""The stages of one training run, each skipped where its content key is done."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from db.schemas import RunRecord
from db.training import DraftCheckpoint, TrainingPoint, TrainingRecord
from specdec_core.config.settings import Settings
from specdec_core.config.training_run import TrainingRunConfig
from specdec_core.errors import ConfigError, ExportError, SearchCancelledError
from specdec_core.training.manifest import DataManifest
from specdec_core.training.outcome import TrainingOutcome
from tasks.draft_data import DataProgress
from tasks.draft_exports import is_whole
from tasks.draft_records import (
    alone_with,
    checkpoint_of,
    drop_changed_draft,
    holds_draft,
    parent_of,
    stored_evaluation,
    training_record,
)
from tasks.draft_report import DraftEvaluation
from tasks.draft_stages import Stages
from tasks.report import Progress
from tasks.runtime import patient_lock, resolve_device
from tasks.sinks import Tracker
from tasks.training_curve import TrainingCurve, validation_lines
from tasks.training_files import DRAFT_FOLDER
from tasks.training_keys import evaluation_key, folder_hash, training_key
from tasks.training_mirror import curve_points
from tasks.training_report import (
    DataSummary,
    Stage,
    TrainingReport,
    headline,
    judge,
    realised_of,
)
from tasks.training_setup import TrainingSetup
from tasks.training_sweep import SweepOutcome, sweep_of

_KEY_CHARACTERS = 16


@dataclass(slots=True)
class Pipeline:
    """One run in progress."""

    config: TrainingRunConfig
    setup: TrainingSetup
    stages: Stages
    run: RunRecord
    tracker: Tracker
    asked: TrainingRunConfig = field(init=False)
    skipped: list[Stage] = field(default_factory=list)
    seconds: dict[Stage, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.asked = self.config

    def report(self, log_file: str) -> TrainingReport:
        """Do what is not done yet, and say what came of it."""
        with self._timed("data"):
            folder, manifest = self._make_data()
        with self._timed("sweep"):
            sweep = self._sweep(folder, manifest)
        with self._timed("training"):
            training, checkpoint = self._train(folder, manifest)
        evaluation: DraftEvaluation | None = None
        setup = self.setup
        with alone_with(
            setup.store, checkpoint.content_hash, setup.settings, setup.should_stop, setup.log
        ) as checkpoint:
            if self.config.evaluate:
                with self._timed("evaluation"):
                    checkpoint, evaluation = self._evaluate(checkpoint)
            if self.config.export:
                with self._timed("export"):
                    checkpoint = self._export(checkpoint)
        outcome = TrainingOutcome.model_validate(training.outcome)
        return TrainingReport(
            run_id=self.run.id,
            headline=headline(training.draft, training.loss, outcome, checkpoint),
            config=self.asked,
            target=training.target,
            target_identity=training.target_identity,
            draft=training.draft,
            losses=training.loss,
            data=DataSummary.of(folder, manifest),
            training_key=training.key,
            outcome=outcome,
            curve=training.curve,
            sweep=sweep.model_dump(mode="json") if sweep else None,
            checkpoint=checkpoint,
            evaluation=evaluation,
            skipped=tuple(self.skipped),
            stage_s=self.seconds,
            hardware=training.hardware,
            log_file=log_file,
            notes=tuple(self.notes),
        )

    @contextlib.contextmanager
    def _timed(self, stage: Stage) -> Iterator[None]:
        if self.setup.should_stop():
            raise SearchCancelledError(f"told to stop before stage {stage!r}")
        started = time.monotonic()
        yield
        self.seconds[stage] = round(time.monotonic() - started, 3)

    def _skip(self, stage: Stage, text: str) -> None:
        self.skipped.append(stage)
        self.setup.log(f"{stage} is done already: {text}")

    def _make_data(self) -> tuple[Path, DataManifest]:
        num_told = 0

        def tell(event: DataProgress) -> None:
            nonlocal num_told
            num_told += 1
            text = f"shards, {event.tokens_per_s:.0f} tokens/s"
            self.setup.progress(
                Progress(stage="data", done=event.num_done, total=event.num_shards, text=text)
            )

        folder, manifest = self.stages.make_data(
            self.config.train.data,
            self.setup.settings,
            num_validation=self.config.train.num_validation,
            is_inline=self.setup.is_inline,
            log=self.setup.log,
            progress=tell,
            should_stop=self.setup.should_stop,
        )
        if not num_told:
            self._skip("data", f"{_samples(manifest)} in {folder}")
        return folder, manifest

    def _sweep(self, data_folder: Path, manifest: DataManifest) -> SweepOutcome | None:
        """Seek learning rate and loss weight, and train with them from here on."""
        config, sweep = self.config, sweep_of(self.config)
        if sweep is None:
            return None
        key = training_key(config.train, manifest, self.setup.settings)[:_KEY_CHARACTERS]
        found = self.stages.sweep(
            config.train,
            sweep,
            self.setup.settings,
            data_folder,
            self.setup.settings.home_dir / "trainings" / f"sweep-{key}",
            is_inline=self.setup.is_inline,
            log=self.setup.log,
            should_stop=self.setup.should_stop,
        )
        self.setup.log(f"learning rate {found.best.learning_rate:g}, loss {found.best.loss}")
        self.config = config.model_copy(update={"train": found.config})
        return found

    def _train(
        self, data_folder: Path, manifest: DataManifest
    ) -> tuple[TrainingRecord, DraftCheckpoint]:
        key = training_key(self.config.train, manifest, self.setup.settings)
        lock = self.setup.settings.home_dir / "locks" / f"training-{key[:_KEY_CHARACTERS]}"
        waiting = "another process trains the same draft: waiting for it"
        with patient_lock(lock, self.setup.should_stop, lambda: self.setup.log(waiting)):
            known = self.setup.store.trainings.get(key)
            folder = self.setup.settings.home_dir / "trainings" / key[:_KEY_CHARACTERS]
            if known is not None and known.checkpoint is not None:
                checkpoint = self.setup.store.checkpoints.find(known.checkpoint)
                if checkpoint and holds_draft(Path(checkpoint.folder), known.checkpoint):
                    self._skip("training", f"key {key[:12]}, run {known.run_id}")
                    self.tracker.curve(self.run.id, curve_points(known.curve, self.run.created_at))
                    return known, checkpoint
                place = folder / DRAFT_FOLDER
                drop_changed_draft(place, known.checkpoint, checkpoint, self.setup.log)
            return self._train_now(key, folder, data_folder, manifest)

    def _train_now(
        self, key: str, folder: Path, data_folder: Path, manifest: DataManifest
    ) -> tuple[TrainingRecord, DraftCheckpoint]:
        train = self.config.train
        record = training_record(key, self.run.id, train, manifest, _hardware(self.setup.settings))

        def keep(points: tuple[TrainingPoint, ...], new: tuple[TrainingPoint, ...]) -> None:
            self.setup.store.trainings.put(record.model_copy(update={"curve": points}))
            self.tracker.curve(self.run.id, curve_points(new, self.run.created_at))
            for line in validation_lines(new):
                self.setup.log(line)

        curve = TrainingCurve(keep, self.setup.progress)
        curve.read(folder)
        self.setup.store.trainings.put(
            record.model_copy(update={"curve": curve.points()}), is_again=True
        )
        folder.mkdir(parents=True, exist_ok=True)
        outcome = self.stages.train(
            train,
            self.setup.settings,
            data_folder,
            folder,
            is_inline=self.setup.is_inline,
            log=self.setup.log,
            progress=curve,
            should_stop=self.setup.should_stop,
        )
        curve.read(folder)
        curve.tell()
        content_hash = folder_hash(outcome.draft_folder)
        done = record.model_copy(
            update={
                "status": "done",
                "curve": curve.points(),
                "outcome": outcome.model_dump(mode="json"),
                "checkpoint": content_hash,
                "wall_s": outcome.seconds,
            }
        )
        self.setup.store.trainings.put(done)
        parent = parent_of(self.setup.store, train)
        return done, self.setup.store.checkpoints.register(checkpoint_of(done, outcome, parent))

    def _evaluate(self, checkpoint: DraftCheckpoint) -> tuple[DraftCheckpoint, DraftEvaluation]:
        key = evaluation_key(self.config.evaluation, checkpoint.content_hash, self.setup.settings)
        if checkpoint.evaluation_key == key:
            known = stored_evaluation(self.setup.store, checkpoint)
            assert known is not None  # the store keeps it with its key
            if not known.failed_cells:
                self._skip("evaluation", f"key {key[:12]}, {checkpoint.state}")
                return checkpoint, known
        evaluation = self.stages.evaluate(
            self.config.evaluation, self.setup, Path(checkpoint.folder)
        )
        state, reason = judge(evaluation)
        realised = realised_of(evaluation, checkpoint.criterion, self.config.train.temperature)
        judged = self.setup.store.checkpoints.judge(
            checkpoint.content_hash,
            state=state,
            reason=reason,
            evaluation_key=key,
            evaluation=evaluation.model_dump(mode="json"),
            realised_length=realised.length if realised else None,
            realised_acceptance=realised.by_depth if realised else (),
        )
        self.setup.log(f"checkpoint {judged.id} is {state}: {reason}")
        return judged, evaluation

    def _export(self, checkpoint: DraftCheckpoint) -> DraftCheckpoint:
        if checkpoint.state != "validated":
            why = checkpoint.reason or "it was not evaluated"
            self.setup.log(f"checkpoint {checkpoint.id} is not exported: {why}")
            return checkpoint
        folder = self.setup.settings.home_dir / "drafts" / checkpoint.content_hash[:_KEY_CHARACTERS]
        known = [each for each in checkpoint.exports if Path(each).is_dir()]
        own = [each for each in checkpoint.exports if Path(each).is_relative_to(folder)]
        damaged = [each for each in own if not is_whole(Path(each))]
        if own and not damaged:
            self._skip("export", ", ".join(own))
            return checkpoint
        for place in damaged:
            self.setup.log(f"export {place} is not what was written: it is written again")
            shutil.rmtree(place, ignore_errors=True)
        evaluation = stored_evaluation(self.setup.store, checkpoint)
        try:
            written = self.stages.export(
                checkpoint, evaluation, folder, self.setup.settings, self.setup.log
            )
        except (ConfigError, ExportError, OSError) as error:
            self.notes.append(f"checkpoint {checkpoint.id} is not exported: {error}")
            self.setup.log(self.notes[-1])
            return checkpoint
        places = dict.fromkeys([*known, *map(str, written)])
        return self.setup.store.checkpoints.note_exports(checkpoint.content_hash, list(places))


def _hardware(settings: Settings) -> str:
    import torch  # slow to import, and a stored training needs none

    from specdec_core.profiling.hardware import describe_hardware

    device = torch.device(resolve_device(settings.device))
    return describe_hardware(device, has_own_kernels=False)


def _samples(manifest: DataManifest) -> str:
    counts = manifest.counts
    return "no counts" if counts is None else f"{counts.num_samples} samples"
