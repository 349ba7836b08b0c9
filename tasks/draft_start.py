"""The draft as a training finds it, as files that decode: what trained ones are compared with."""

from __future__ import annotations

import tempfile
from pathlib import Path

from specdec_core.config.settings import Settings
from specdec_core.config.training import TrainConfig
from specdec_core.models.files import writing
from tasks.run_files import make_folder
from tasks.runtime import LogLine, file_lock
from tasks.start_files import made_once
from tasks.training_job import plan_job


def start_draft(train: TrainConfig, settings: Settings, data_folder: Path, log: LogLine) -> Path:
    """Return the folder of the draft that a training begins with; it is made once.

    A draft model is its own folder, a pruned draft the blocks cut from the target, a learned head
    the one that is drawn from the seed.

    Args:
        train: The training.
        settings: Where models and trainings are.
        data_folder: Of its finished training data, which a narrowed vocabulary is counted in.
        log: Takes lines for the user.

    Raises:
        ConfigError: if data, target and draft do not fit each other.
        StoreError: if it cannot be written, such as on a full disk.
    """
    root = make_folder(settings.home_dir.absolute() / "trainings" / "starts")
    with file_lock(root / ".lock"):
        job = plan_job(train, settings, data_folder.absolute(), root, log)
        if job.start_folder is not None:
            return job.start_folder

        def draw(folder: Path) -> None:
            import torch  # slow to import, and other kinds are files already

            from specdec_core.training.data import DraftData
            from tasks.training_worker import untrained_draft

            data = DraftData.open(data_folder)
            draft = untrained_draft(job, data, torch.device("cpu"))
            name = f".{folder.name}-"
            with writing(folder), tempfile.TemporaryDirectory(dir=root, prefix=name) as temporary:
                written = Path(temporary) / "draft"
                draft.save(written)
                written.replace(folder)

        return made_once(root / f"{train.draft.kind}-{job.identity[:16]}", draw, log)
