"""The tables of methods are read from their options, and shown elsewhere as they are."""

from pathlib import Path

import pytest

from flows.method_table import feature_table, method_table, option_table
from specdec_core.config.drafters import METHODS, parse_drafter
from specdec_core.errors import ConfigError

_ROOT = Path(__file__).parents[3]
_README, _MANUAL = _ROOT / "README.md", _ROOT / "docs" / "methods.md"
# What every method that needs it takes: a model's name, a datastore's folder, a layer's number.
_REQUIRED = {"draft model": "model=x", "datastore": "datastore=x"}
_FEATURES = [dict(zip(feature_table().columns, row, strict=True)) for row in feature_table().rows]


def test_readme_shows_every_method_as_it_is_now():
    readme = _README.read_text()
    for row in method_table().rows:
        assert "| " + " | ".join(row) + " |" in readme


def test_the_manual_shows_what_can_be_combined_as_it_is_now():
    table = feature_table().to_markdown().partition("\n\n")[2]
    assert table in _MANUAL.read_text()


@pytest.mark.parametrize("row", _FEATURES, ids=lambda row: row["method"])
def test_what_the_table_says_no_to_is_refused_and_what_is_required_is_asked_for(row):
    method = row["method"].strip("`")
    needed = [option for column, option in _REQUIRED.items() if row[column] == "required"]
    needed += ["skip=1"] if method == "layer-skip" else []
    assert parse_drafter(f"{method}:{','.join(needed)}").method == method
    if needed:
        with pytest.raises(ConfigError, match="Field required"):
            parse_drafter(method)
    for column, option in {**_REQUIRED, "warm start": "state_scope=run"}.items():
        if option not in needed:
            text = f"{method}:{','.join([*needed, option])}"
            if row[column] != "no":
                parse_drafter(text)
                continue
            with pytest.raises(ConfigError, match=f"{option.partition('=')[0]}: "):
                parse_drafter(text)


def test_the_table_names_the_rules_that_keep_tokens_or_only_their_law():
    rows = {row["method"]: row for row in _FEATURES}
    for method in ("`none`", "`ptd`", "`draft-tree`"):
        assert rows[method]["same tokens under"] == "auto, match"
        assert rows[method]["same law under"] == "residual, rejection"
    # These draw their candidates by default, and drawn ones are tested by rejection.
    for method in ("`draft-model`", "`layer-skip`"):
        assert rows[method]["same tokens under"] == "match"
        assert rows[method]["same law under"] == "auto, residual, rejection"
    assert {row["lossy under"] for row in _FEATURES} == {"typical"}
    assert {row["greedy"] for row in _FEATURES} == {"same tokens"}


def test_the_table_tells_chains_from_trees():
    shapes = {row["method"]: row["proposes"] for row in _FEATURES}
    assert shapes["`none`"] == "nothing"
    assert shapes["`prompt-lookup`"] == shapes["`draft-model`"] == "chains"
    assert shapes["`token-recycling`"] == shapes["`draft-tree`"] == "trees"


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
