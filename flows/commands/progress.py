"""Progress of a run on the terminal: a bar for people, a line now and then for log files."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_LINE_INTERVAL_S = 10.0


class ProgressDisplay:
    """Shows lines and one bar on standard error; without a terminal, lines only.

    Args:
        is_quiet: Whether only the lines are shown, not the progress.
    """

    def __init__(self, is_quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._has_bar = self._console.is_terminal and not is_quiet
        self._is_quiet = is_quiet
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

    def show(self, percent: float, text: str) -> None:
        """Move the bar to `percent`; without a terminal, say so every ten seconds."""
        self._bar.update(self._task, completed=percent, description=text)
        due = time.monotonic() - self._last_line >= _LINE_INTERVAL_S
        if not self._has_bar and not self._is_quiet and due and text != self._last_text:
            self._last_line, self._last_text = time.monotonic(), text
            self.say(f"{percent:3.0f}% {text}")

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
