"""Files of a draft before its training: made once, and again where they were damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from specdec_core.errors import ConfigError
from tasks.run_files import write_text
from tasks.runtime import LogLine
from tasks.training_keys import folder_hash


def made_once(folder: Path, make: Callable[[Path], object], log: LogLine) -> Path:
    """Return `folder` with what `make` writes into it, which must be the same every time.

    The hash of its files lies beside it, written last. Files that differ from it were damaged, or
    their maker was killed; a training must not begin with them under a key that says otherwise.

    Args:
        folder: Where they are; nothing else may be in it.
        make: Writes them into a folder that is not there yet.
        log: Takes lines for the user.

    Raises:
        StoreError: if they cannot be written.
    """
    mark = folder.with_name(f"{folder.name}.sha256")
    if folder.exists():
        if mark.exists() and mark.read_bytes().strip() == _hash_of(folder):
            return folder
        log(f"{folder} does not have the files that were left there: it is made again")
        shutil.rmtree(folder)
    make(folder)
    write_text(mark, folder_hash(folder) + "\n")
    return folder


def _hash_of(folder: Path) -> bytes | None:
    try:
        return folder_hash(folder).encode()
    except ConfigError:  # nothing is in it
        return None
