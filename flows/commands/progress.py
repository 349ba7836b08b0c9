"""Progress of a run on the terminal: a bar for people, a line now and then for log files."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from flows.progress import describe, percent
from tasks import report

_LINE_INTERVAL_S = 10.0


class ProgressDisplay:
    """Shows lines and one bar on standard error; without a terminal, lines only."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._has_bar = self._console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._has_bar,
        )
        self._task = self._bar.add_task("starting", total=100.0)
        self._last_line = time.monotonic()
        self._last_text = ""

    def say(self, text: str) -> None:
        """Show one line above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def follow(self, progress: report.Progress) -> None:
        """Show how far a driver is."""
        self.show(percent(progress), describe(progress))

    def show(self, share: float, text: str) -> None:
        """Move the bar to `share` per cent; without a terminal, say so every ten seconds."""
        self._bar.update(self._task, completed=share, description=text)
        due = time.monotonic() - self._last_line >= _LINE_INTERVAL_S
        if not self._has_bar and due and text != self._last_text:
            self._last_line, self._last_text = time.monotonic(), text
            self.say(f"{share:3.0f}% {text}")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()
