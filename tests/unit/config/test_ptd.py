"""Options of Progressive Tree Drafting: profiles, switches, bounds, text form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.ptd import Ptd, PtdSwitches, growing_tree_size
from specdec_core.errors import ConfigError

VALUES = {
    "profile": ["default", "paper", "release"],
    "width": [2, 4],
    "init": ["random", "ner"],
    "expansion": ["greedy", "top-k", "top-p"],
    "expansion_p": [0.1, 0.25],
    "sub_trees": [None, 0, 1],
    "stagger": [None, True, False],
    "merge": [None, "before", "after"],
    "pool_start": [None, "first", "full"],
    "verified": [None, "off", "key", "all"],
    "confirm": [None, True, False],
    "prefill": [None, True, False],
    "order": [None, "insertion", "likely"],
    "context": [None, 1, 3],
    "candidates": [None, 1, 64],
    "cap": [None, "none", "once", "strict"],
    "eos": [None, "expand", "cut", "leaf"],
    "fallback": [None, "none", "prompt-lookup"],
}
OPTIONS = st.fixed_dictionaries({name: st.sampled_from(each) for name, each in VALUES.items()})


@given(OPTIONS)
def test_text_form_reads_back(options):
    config = Ptd(**options)
    assert parse_drafter(format_drafter(config)) == config


def test_the_text_form_names_what_was_given():
    assert format_drafter(Ptd()) == "ptd"
    text = "ptd:profile=paper,width=2,stagger=True,context=2"
    assert format_drafter(parse_drafter(text)) == text
    assert parse_drafter("ptd:stagger=false,sub_trees=0").switches.sub_trees == 0


@given(OPTIONS)
def test_a_switch_that_is_given_wins_over_the_profile(options):
    switches, bare = Ptd(**options).switches, Ptd(profile=options["profile"]).switches
    for name in PtdSwitches.__slots__:
        wanted = options[name] if options[name] is not None else getattr(bare, name)
        assert getattr(switches, name) == wanted


def test_profiles_are_those_of_paper_release_and_ours():
    paper, release, own = (Ptd(profile=name).switches for name in ("paper", "release", "default"))
    assert (paper.sub_trees, release.sub_trees, own.sub_trees) == (1, 0, 0)
    assert (release.stagger, own.stagger) == (True, True)
    assert (paper.merge, release.merge, own.merge) == ("after", "before", "before")
    assert (paper.pool_start, release.pool_start, own.pool_start) == ("first", "full", "first")
    assert (paper.verified, release.verified, own.verified) == ("off", "key", "all")
    assert (paper.cap, release.cap, own.cap) == ("none", "once", "strict")
    assert (paper.eos, release.eos, own.eos) == ("expand", "cut", "leaf")
    assert (paper.confirm, release.confirm) == (False, False)
    assert paper.fallback == release.fallback == "none"
    assert paper.context == release.context == 1
    assert Ptd(profile="paper").num_trees == 1
    assert Ptd(width=3).num_trees == 3


def test_sizes_of_a_growing_tree():
    assert [growing_tree_size(4, steps) for steps in range(7)] == [1, 2, 4, 8, 16, 31, 60]
    assert [growing_tree_size(16, steps) for steps in range(7)] == [1, 2, 4, 8, 16, 32, 64]
    assert [growing_tree_size(2, steps) for steps in range(4)] == [1, 2, 4, 7]
    assert Ptd().tree_bound == 31


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ptd:width=8,depth=12", r"draft up to \d+ tokens per step in 8 trees: at most 1024"),
        ("ptd:width=0", "width: Input should be greater than or equal to 1"),
        ("ptd:expansion_p=0", "expansion_p: Input should be greater than 0"),
        ("ptd:profile=fast", "profile: Input should be 'default', 'paper' or 'release'"),
        ("ptd:w=4", "w: Extra inputs are not permitted; ptd takes: profile, width, depth"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_drafter(text)
