"""Helpers to write suites."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Row = dict[str, Any]
WriteSuite = Callable[[str, list[Row]], Path]


def _row(number: int = 0, **changes: Any) -> Row:
    row = {
        "id": f"qa/{number}",
        "domain": "qa",
        "prompt": f"Question {number}?",
        "reference": [f"answer {number}"],
        "metric": "f1",
        "meta": {"source": "test"},
    }
    return {**row, **changes}


@pytest.fixture
def row() -> Callable[..., Row]:
    """Return a maker of valid rows; keyword arguments replace fields."""
    return _row


@pytest.fixture
def write_suite(tmp_path: Path) -> WriteSuite:
    """Return a writer of JSONL files below the temporary folder."""

    def write(name: str, rows: list[Row]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path.write_text(text, encoding="utf-8")
        return path

    return write
