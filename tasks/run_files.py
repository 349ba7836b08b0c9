"""Files of a finished run, such as its report and plots: written last, and never at its cost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from db.schemas import RunRecord
from db.store import Store
from specdec_core.config.settings import Settings
from tasks.runtime import run_files

logger = logging.getLogger(__name__)

WriteFiles = Callable[[Store, RunRecord, Path], object]
"""Writes what a completed run has to show into a folder."""


def no_files(_store: Store, _run: RunRecord, _folder: Path) -> None:
    """Write nothing."""


def leave_files(write: WriteFiles, store: Store, run: RunRecord, settings: Settings) -> None:
    """Let `write` fill the folder of a run whose result is stored.

    A folder that cannot be written is a warning: the store has everything that would lie there.
    """
    try:
        write(store, run, run_files(settings, run.id))
    except OSError as error:
        logger.warning(
            "files of run %s are not all written (%s): `specdec runs export %s --to FOLDER` writes "
            "them from the store",
            run.id,
            error,
            run.id,
        )
