"""Layer lists as text, both ways."""

from __future__ import annotations

import pytest

from specdec_core.config.layers import format_layers, parse_layers
from specdec_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "layers", "canonical"),
    [
        ("", set(), ""),
        ("3", {3}, "3"),
        ("1-4", {1, 2, 3, 4}, "1-4"),
        (" 7, 1-3 ,2,", {1, 2, 3, 7}, "1-3,7"),
        ("1,2", {1, 2}, "1-2"),
        ("10-10", {10}, "10"),
    ],
)
def test_numbers_and_ranges(text: str, layers: set[int], canonical: str) -> None:
    assert parse_layers(text) == layers
    assert format_layers(layers) == canonical
    assert parse_layers(canonical) == layers


@pytest.mark.parametrize("text", ["a1", "3-1", "1--2", "-1", "1.5", "1 2"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not understood: write numbers and ranges"):
        parse_layers(text)


@pytest.mark.parametrize("text", ["0-99999999999", "1,10000"])
def test_ranges_beyond_any_target_are_refused_before_they_fill_memory(text: str) -> None:
    with pytest.raises(ConfigError, match="those of no target: name layers up to 9999"):
        parse_layers(text)
