"""Tables as plain data, drawn for the terminal or written as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from db.schemas import Interval, MetricChangeKind, MetricName

ABSENT = "-"


@dataclass(frozen=True, slots=True)
class TableView:
    """A titled table whose cells are text already."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_rich(self) -> Table:
        """Return the table for the terminal."""
        table = Table(title=self.title, title_justify="left", title_style="bold")
        for column in self.columns:
            table.add_column(column, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def to_markdown(self) -> str:
        """Return the table under a heading."""
        lines = [
            _markdown_row(self.columns),
            _markdown_row(["---"] * len(self.columns)),
            *(_markdown_row(row) for row in self.rows),
        ]
        return f"### {self.title}\n\n" + "\n".join(lines)

    def to_records(self) -> list[dict[str, str]]:
        """Return one mapping per row, for Prefect's table artifact."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def number(value: float | None, digits: int = 3) -> str:
    """Return a figure, or a dash where there is none."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def quality(value: float | None, name: MetricName) -> str:
    """Return a metric beside those of other domains; marked where it is an agreement."""
    return number(value, 4) if name == "metric" or value is None else f"{value:.4f} ({name})"


def quality_change(
    interval: Interval | None, kind: MetricChangeKind, name: MetricName = "metric"
) -> str:
    """Return its change with the interval, marked in the same way."""
    text = change(interval, kind)
    return text if name == "metric" or interval is None else f"{text} ({name})"


def percent(value: float | None) -> str:
    """Return a share in per cent."""
    return ABSENT if value is None else f"{value:.1%}"


def share(value: float | None) -> str:
    """Return a relative change in per cent, signed."""
    return ABSENT if value is None else f"{value:+.1%}"


def change(interval: Interval | None, kind: MetricChangeKind = "relative") -> str:
    """Return a change with its interval: in per cent, or a plain difference as it is."""
    if interval is None:
        return ABSENT
    form = "+.1%" if kind == "relative" else "+.4f"
    return f"{interval.estimate:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


def ratio(interval: Interval | None) -> str:
    """Return a ratio such as a speed-up with its interval."""
    if interval is None:
        return ABSENT
    return f"{interval.estimate:.3f}x [{interval.low:.3f}, {interval.high:.3f}]"


def code_block(text: str) -> str:
    """Return `text` as a Markdown code block that its own backticks cannot end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


def _markdown_row(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"
