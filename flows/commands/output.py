"""How commands speak: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.table import Table

_PIPE_WIDTH = 140


def console() -> Console:
    """Console for results; a file or pipe has room for the widest table."""
    is_measured = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(highlight=False, width=None if is_measured else _PIPE_WIDTH)


def note(text: str) -> None:
    """Tell the user what is going on, without disturbing what a machine reads."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def to_plain(value: Any) -> Any:
    """Return `value` as JSON types."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def emit(args: Namespace, value: Any, render: Callable[[], RenderableType]) -> None:
    """Print `value` as one JSON document with ``--json``, else what `render` draws."""
    if args.json:
        args.out.write(json.dumps(to_plain(value), indent=2, default=str) + "\n")
    else:
        # Lines are left to the terminal to wrap: addresses and paths are there to be copied.
        console().print(render(), soft_wrap=True)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table; an absent value is shown as a dash."""
    drawn = Table(title=title, title_justify="left")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*("-" if cell is None or cell == "" else str(cell) for cell in row))
    return drawn
