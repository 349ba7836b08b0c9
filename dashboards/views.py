"""Cells and tables: one definition for the page and for its CSV download."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from db.schemas import Interval

ABSENT = "–"  # noqa: RUF001  an en dash is what stands for no value
ChangeKind = Literal["relative", "difference", "ratio"]
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Cell:
    """A value for machines and its text for people."""

    value: str | int | float | bool | None
    text: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """Heading for people and name in the CSV."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of cells; `name` is the stem of its CSV."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def to_csv(self, lead: Sequence[tuple[str, str]] = ()) -> str:
        """Return the table as CSV with full precision.

        Args:
            lead: Columns of one value each, put before the others, such as the run.

        Text that a spreadsheet would take for a formula gets an apostrophe in front.
        """
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow([*(name for name, _ in lead), *(column.name for column in self.columns)])
        for row in self.rows:
            given = [*(value for _, value in lead), *(cell.value for cell in row)]
            writer.writerow([_harmless(value) for value in given])
        return file.getvalue()


def named_columns(**titles: str) -> tuple[Column, ...]:
    """Return columns with their headings, by name."""
    return tuple(Column(name, title) for name, title in titles.items())


def _harmless(value: str | int | float | bool | None) -> str | int | float | bool | None:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def text_cell(value: str | None) -> Cell:
    """A text; none shows as a dash."""
    return Cell(value, value or ABSENT)


def number_cell(value: float | None, digits: int = 3) -> Cell:
    """A figure with `digits` decimals."""
    return Cell(value, number(value, digits), is_number=True)


def percent_cell(value: float | None) -> Cell:
    """A relative change, signed, in per cent."""
    return Cell(value, percent(value), is_number=True)


def share_cell(value: float | None) -> Cell:
    """A share in per cent, without a sign."""
    return Cell(value, ABSENT if value is None else f"{value:.1%}", is_number=True)


def flag_cell(value: bool, yes: str, no: str) -> Cell:
    """A statement in words."""
    return Cell(value, yes if value else no)


def change_cells(interval: Interval | None, kind: ChangeKind) -> tuple[Cell, Cell, Cell]:
    """Estimate, low end and high end."""
    if interval is None:
        return (number_cell(None),) * 3
    low, middle, high = (
        Cell(value, change_text(value, kind), is_number=True)
        for value in (interval.low, interval.estimate, interval.high)
    )
    return middle, low, high


def number(value: float | None, digits: int = 3) -> str:
    """A figure, or a dash where there is none."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A relative change, signed, in per cent."""
    return ABSENT if value is None else f"{value:+.1%}"


def change_text(value: float, kind: ChangeKind) -> str:
    """A change as its kind is read: per cent, plain difference, or times."""
    if kind == "relative":
        return percent(value)
    return f"{value:+.4f}" if kind == "difference" else f"{value:.3f}x"


def interval_text(interval: Interval | None, kind: ChangeKind = "relative") -> str:
    """An interval without its estimate."""
    if interval is None:
        return ABSENT
    return f"{change_text(interval.low, kind)} to {change_text(interval.high, kind)}"


def moment(value: datetime) -> str:
    """A time of day in UTC, to the minute."""
    return f"{value:%Y-%m-%d %H:%M} UTC"


def seconds(value: float) -> str:
    """A duration in seconds or minutes."""
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"
