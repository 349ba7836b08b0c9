"""Files of a finished run, such as its report and plots: written last, and never at its cost."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

from db.schemas import RunRecord
from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.models.files import write_whole
from tasks.runtime import run_files

logger = logging.getLogger(__name__)

WriteFiles = Callable[[Store, RunRecord, Path], object]
"""Writes what a completed run has to show into a folder."""


def slug(text: str) -> str:
    """Return text as part of a file name or address: lower case, digits, dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def make_folder(folder: Path) -> Path:
    """Make a folder that files shall go into, unless it is there; return it.

    Raises:
        ConfigError: if it cannot be made, such as below a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"folder {folder} cannot be made ({error.strerror}): name one that you may write to"
        ) from error
    return folder


def write_text(path: Path, text: str) -> Path:
    """Write a file by temporary name and rename, as somebody may be reading it; return `path`.

    Raises:
        ConfigError: if it is a folder, or its folder cannot be made.
        StoreError: if it cannot be written.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file")
    make_folder(path.parent)
    write_whole(path, text)
    return path


def no_files(_store: Store, _run: RunRecord, _folder: Path) -> None:
    """Write nothing."""


def leave_files(write: WriteFiles, store: Store, run: RunRecord, settings: Settings) -> None:
    """Let `write` fill the folder of a run whose result is stored.

    What cannot be drawn or written is a warning: the store has everything that would lie there.
    """
    try:
        write(store, run, run_files(settings, run.id))
    except Exception as error:  # noqa: BLE001 - a picture of the work must not cost the work
        logger.warning(
            "files of run %s are not all written (%s: %s): `specdec runs export %s --to FOLDER` "
            "writes them from the store",
            run.id,
            type(error).__name__,
            error,
            run.id,
        )
