"""Drafters by method name."""

from typing import Literal

import pytest

from specdec_core.config.base import Record
from specdec_core.config.drafters import METHODS, NoDrafter, PromptLookup, TokenRecycling
from specdec_core.decoding import DRAFTERS, make_drafter
from specdec_core.decoding.registry import DrafterRegistry
from specdec_core.errors import ConfigError


class Lookup(Record):
    method: Literal["lookup"] = "lookup"


def test_every_configured_method_has_a_drafter_and_none_is_left_over():
    assert set(DRAFTERS.methods) == set(METHODS)
    for config in (NoDrafter(), PromptLookup(), TokenRecycling()):
        assert make_drafter(config) is not make_drafter(config)


def test_a_method_is_registered_once():
    registry = DrafterRegistry()
    registry.register(Lookup)(lambda config, context: None)
    with pytest.raises(ConfigError, match="'lookup' is registered twice: rename one"):
        registry.register(Lookup)(lambda config, context: None)


def test_options_without_a_method_name_are_refused():
    with pytest.raises(ConfigError, match="Record has no default for 'method'"):
        DrafterRegistry().register(Record)


def test_an_unknown_method_is_answered_with_near_ones():
    with pytest.raises(ConfigError, match=r"method 'lookup' .* did you mean prompt-lookup"):
        make_drafter(Lookup())
    with pytest.raises(ConfigError, match=r"method 'lookup' .* did you mean to register one"):
        DrafterRegistry().make(Lookup())


def test_options_of_another_class_with_a_known_name_are_refused():
    class Impostor(Record):
        method: Literal["none"] = "none"

    with pytest.raises(ConfigError, match="options Impostor"):
        make_drafter(Impostor())


def test_a_drafter_that_sees_rejected_nodes_cannot_be_replayed():
    replayable = [NoDrafter(), PromptLookup(), TokenRecycling(update="path")]
    assert all(config.is_replayable for config in replayable)
    assert not TokenRecycling(update="all").is_replayable
