"""The files of a training: metrics, written by its first worker and followed by its driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdec_core.errors import StoreError
from specdec_core.training.outcome import StepMetrics, ValidationMetrics, parse_event

METRICS_FILE = "metrics.jsonl"
"""Its name in the folder of a training."""

DRAFT_FOLDER = "draft"
"""Where the best draft is in it."""


class MetricsFile:
    """Metrics as lines of JSON, each written at once.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def truncate(self, num_steps: int | None) -> None:
        """Drop what came after so many steps, as those are done again; None drops everything.

        Raises:
            StoreError: if it cannot be written.
        """
        kept = []
        if num_steps is not None:
            kept = [line for line, event in _lines(self._path) if event.step <= num_steps]
        part = self._path.with_suffix(".part")
        with self._writing():
            part.write_text("".join(kept), encoding="utf-8")
            part.replace(self._path)

    def append(self, event: StepMetrics | ValidationMetrics) -> None:
        """Add one line.

        Raises:
            StoreError: if it cannot be written.
        """
        with self._writing(), self._path.open("a", encoding="utf-8") as file:
            file.write(event.model_dump_json() + "\n")

    def read(self) -> list[StepMetrics | ValidationMetrics]:
        """Return all events; nothing if there is no file."""
        return [event for _, event in _lines(self._path)]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be written ({error}): free space; the same command continues"
            ) from error


class LineTail:
    """Follows a file that grows, and may be replaced by one that shares its beginning.

    Args:
        path: Of the file; may come to be later.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: list[str] = []
        self._offset = 0
        self._file_id: int | None = None

    def read(self) -> list[str]:
        """Return whole lines that were not there at the last call, in order."""
        try:
            with self._path.open("rb") as file:
                stat = os.fstat(file.fileno())
                if stat.st_ino != self._file_id or stat.st_size < self._offset:
                    return self._start_over(file.read(), stat.st_ino)
                file.seek(self._offset)
                return self._take(file.read())
        except FileNotFoundError:
            return []

    def _start_over(self, content: bytes, file_id: int) -> list[str]:
        """Take a file that replaced the one followed: what both begin with is known."""
        before, self._seen = self._seen, []
        self._offset, self._file_id = 0, file_id
        lines = self._take(content)
        shared = 0
        while shared < min(len(before), len(lines)) and before[shared] == lines[shared]:
            shared += 1
        return lines[shared:]

    def _take(self, content: bytes) -> list[str]:
        whole = content[: content.rfind(b"\n") + 1]
        lines = whole.decode().splitlines()
        self._seen += lines
        self._offset += len(whole)
        return lines


def _lines(path: Path) -> Iterator[tuple[str, StepMetrics | ValidationMetrics]]:
    """Yield whole lines and what they say; a last line that was cut off is left out."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield line, parse_event(line)
