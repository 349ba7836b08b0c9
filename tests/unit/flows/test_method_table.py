"""The table of methods is read from their options, and README shows it as it is."""

from pathlib import Path

import pytest

from flows.method_table import method_table, option_table
from specdec_core.config.drafters import METHODS
from specdec_core.errors import ConfigError

_README = Path(__file__).parents[3] / "README.md"


def test_readme_shows_every_method_as_it_is_now():
    readme = _README.read_text()
    for row in method_table().rows:
        assert "| " + " | ".join(row) + " |" in readme


def test_every_option_has_a_default_and_a_meaning():
    for method in METHODS:
        for name, default, meaning in option_table(method).rows:
            assert default
            assert meaning, f"{method}: {name}"


def test_a_method_says_which_choice_makes_it_replayable():
    rows = {row[0]: row for row in method_table().rows}
    assert rows["`prompt-lookup`"][3:] == ("yes", "prompt")
    assert rows["`token-recycling`"][3:] == ("with `update=path`", "prompt or run")
    assert rows["`lookahead`"][3] == "no"


def test_a_method_says_whether_candidates_are_drawn_or_which_choice_draws_them():
    candidates = {row[0]: row[2] for row in method_table().rows}
    assert candidates["`prompt-lookup`"] == "chosen"
    assert candidates["`draft-model`"] == candidates["`layer-skip`"] == "drawn or chosen"
    assert candidates["`draft-tree`"] == "chosen, drawn with `draft=sample`"


def test_an_unknown_method_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match="'nope' is unknown: choose one of none, prompt-lookup"):
        option_table("nope")
