"""The files of a training: metrics, written by its first worker and followed by its driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from pydantic import ValidationError

from specdec_core.errors import StoreError
from specdec_core.models.files import write_whole, writing
from specdec_core.training.outcome import StepMetrics, ValidationMetrics, parse_event

METRICS_FILE = "metrics.jsonl"
"""Its name in the folder of a training."""

DRAFT_FOLDER = "draft"
"""Where the best draft is in it."""


class MetricsFile:
    """Metrics as lines of JSON, each written at once; a checkpoint follows what is on the disk.

    Args:
        path: Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def truncate(self, num_steps: int | None) -> None:
        """Drop what came after so many steps, as those are done again; None drops everything.

        Raises:
            StoreError: if the steps before are not in it, or it cannot be written.
        """
        kept = self.read_to(num_steps) if num_steps is not None else []
        write_whole(self._path, "".join(_line(event) for event in kept))

    def append(self, event: StepMetrics | ValidationMetrics) -> None:
        """Add one line.

        Raises:
            StoreError: if it cannot be written.
        """
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(_line(event))
            if event.kind == "validation":
                file.flush()
                os.fsync(file.fileno())

    def read(self) -> list[StepMetrics | ValidationMetrics]:
        """Return all events; nothing if there is no file.

        Raises:
            StoreError: if one is damaged.
        """
        return list(self._events())

    def read_to(self, num_steps: int) -> list[StepMetrics | ValidationMetrics]:
        """Return what was measured before the training, in so many steps, and after them.

        Raises:
            StoreError: if something of that is missing or damaged; a last line that was cut off
                by a kill is not.
        """
        found = list(takewhile(lambda event: event.step <= num_steps, self._events()))
        steps = [event.step for event in found if event.kind == "step"]
        if steps != list(range(1, num_steps + 1)) or not found or found[0].kind != "validation":
            raise self._damaged(f"steps 1 to {num_steps} are not all in it")
        return found

    def _events(self) -> Iterator[StepMetrics | ValidationMetrics]:
        if not self._path.exists():
            return
        for number, line in enumerate(self._path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield parse_event(line)
            except ValidationError as error:
                raise self._damaged(f"line {number} says {line[:40]!r}") from error

    def _damaged(self, why: str) -> StoreError:
        folder = self._path.parent
        return StoreError(
            f"{self._path} is damaged ({why}), and what was trained until then cannot be told "
            f"without it: put it back, or 'rm -r {folder}', which trains anew"
        )


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
        lines = whole.decode(errors="replace").splitlines()
        self._seen += lines
        self._offset += len(whole)
        return lines


def _line(event: StepMetrics | ValidationMetrics) -> str:
    return event.model_dump_json() + "\n"
