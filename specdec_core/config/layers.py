"""Layer numbers as people write them: ``1-10,14``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from specdec_core.errors import ConfigError

_PART = re.compile(r"(\d+)(?:-(\d+))?")
_HIGHEST = 9_999  # beyond any target, and a set of so many costs nothing


def parse_layers(text: str) -> frozenset[int]:
    """Return the layers, 0-based, that numbers and ranges such as ``1-10,14`` name.

    Both ends of a range count; no text names no layer.

    Raises:
        ConfigError: if a part is neither a number nor a range that goes up, or beyond any target.
    """
    found: set[int] = set()
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise ConfigError(
                f"layers {part!r} in {text!r} are not understood: write numbers and ranges that "
                "go up, such as 1-10,14"
            )
        if last > _HIGHEST:
            raise ConfigError(
                f"layers {part!r} in {text!r} are those of no target: name layers up to {_HIGHEST}"
            )
        found.update(range(first, last + 1))
    return frozenset(found)


def format_layers(layers: Iterable[int]) -> str:
    """Return the shortest text that `parse_layers` reads back."""
    ordered = sorted(set(layers))
    starts = [n for n, layer in enumerate(ordered) if n == 0 or ordered[n - 1] != layer - 1]
    ranges = zip(starts, [*starts, len(ordered)][1:], strict=True)
    runs = [(ordered[start], ordered[end - 1]) for start, end in ranges]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
