"""One search, or several at once, answered by one dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from tasks.answers import Answer
from tasks.dispatch import Dispatcher


class Asking(Protocol):
    """A search that asks a dispatcher for all that it needs now, and takes the answers."""

    @property
    def is_finished(self) -> bool:
        """Whether it needs nothing more and awaits nothing."""
        ...

    def ask(self) -> None:
        """Ask for what has become known to be needed."""
        ...

    def awaits(self, key: str) -> bool:
        """Whether it has asked for an evaluation and not been given the answer."""
        ...

    def take(self, answers: Sequence[Answer]) -> None:
        """Take answers that it awaits."""
        ...


def run_together(searches: Sequence[Asking], dispatcher: Dispatcher) -> None:
    """Answer searches until all are finished; each has asked for what it needs at any time.

    So a worker rests only where none of them knows what to do next. What several need is evaluated
    once: the first in the order given is told what it took, the others that it is stored.
    """
    while unfinished := [search for search in searches if not search.is_finished]:
        for search in unfinished:
            search.ask()
        answers = {answer.request.key: answer for answer in dispatcher.wait()}
        for search in unfinished:
            awaited = [answer for key, answer in answers.items() if search.awaits(key)]
            search.take(awaited)
            answers |= {one.request.key: _as_stored(one) for one in awaited}


def _as_stored(answer: Answer) -> Answer:
    return replace(answer, source="store", seconds=0.0)
