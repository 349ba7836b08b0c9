"""Options of retrieving drafters."""

from pathlib import Path

import pytest

from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.retrieval import Rest, SuffixAutomaton
from specdec_core.errors import ConfigError


def test_a_datastore_is_named_for_every_folder_a_process_runs_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = parse_drafter("rest:datastore=stores/../store,num_nodes=8")
    assert config == Rest(datastore=str(tmp_path / "store"), num_nodes=8)
    assert parse_drafter(format_drafter(config)) == config
    home = parse_drafter("suffix-automaton:datastore=~/store")
    assert home.datastore == str(Path.home() / "store")


def test_no_datastore_stays_none():
    assert parse_drafter("suffix-automaton") == SuffixAutomaton(datastore="")
    assert format_drafter(SuffixAutomaton()) == "suffix-automaton"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rest", "datastore: Field required"),
        ("rest:datastore=", "datastore: String should have at least 1 character"),
        ("rest:datastore=a,min_suffix=9,max_suffix=8", "min_suffix 9 is above max_suffix 8"),
        (
            "suffix-automaton:fallback=none,update=path",
            "update has no effect without a fallback: leave it out",
        ),
        (
            "suffix-automaton:fallback=none,fallback_nodes=9,state_scope=run",
            "fallback_nodes, state_scope has no effect without a fallback",
        ),
        ("suffix-automaton:len_bias=2", "len_bias has no effect without a datastore"),
        ("suffix-automaton:fallback=eagle", "Input should be 'token-recycling' or 'none'"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_drafter(text)


@pytest.mark.parametrize(
    ("text", "is_replayable"),
    [
        ("suffix-automaton", False),
        ("suffix-automaton:update=path", True),
        ("suffix-automaton:fallback=none", True),
        ("rest:datastore=x", True),
    ],
)
def test_what_sees_committed_tokens_alone_can_be_replayed(text, is_replayable):
    assert parse_drafter(text).is_replayable == is_replayable
