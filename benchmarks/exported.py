"""Folders that `specdec runs export` wrote, for pages of docs: documents, links, tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Document = Mapping[str, Any]
Documents = Mapping[str, Document]


@dataclass(frozen=True, slots=True)
class ExportedRuns:
    """A folder below benchmarks/results: NAME.json, NAME.md and plots in NAME for every run."""

    folder: Path

    def load(self) -> dict[str, Document]:
        """Return the documents by name; none where the folder is not there."""
        return {
            path.stem: json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))
        }

    def link(self, name: str, text: str) -> str:
        """Return a link from a page of docs to the page of a run."""
        return f"[{text}]({self._place(name)}.md)"

    def plots(self, name: str) -> list[str]:
        """Return which plots of a run there are."""
        return sorted(path.stem for path in (self.folder / name).glob("*.png"))

    def pictures(self, name: str, stems: Sequence[str]) -> str:
        """Return these plots of a run as pictures; those that are not there are left out."""
        drawn = self.plots(name)
        shown = [stem for stem in stems if stem in drawn]
        return (
            "\n".join(f"![{name}: {stem}]({self._place(name)}/{stem}.png)" for stem in shown) + "\n"
        )

    def _place(self, name: str) -> str:
        return f"../benchmarks/results/{self.folder.name}/{name}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def table_of(found: Document) -> str:
    """Return a table of a document as Markdown."""
    return table(found["columns"], rows_of(found))


def rows_of(found: Document) -> list[list[str]]:
    """Return the rows of a table of a document, cell by cell."""
    return [row.replace("\n", " ").split(" | ") for row in found["rows"]]


def records_of(found: Document) -> list[dict[str, str]]:
    """Return the rows of a table of a document by column."""
    return [dict(zip(found["columns"], row, strict=True)) for row in rows_of(found)]
