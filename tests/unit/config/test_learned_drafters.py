"""Options of trained drafters: shapes, what belongs to which, and their text."""

import pytest

from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("eagle:model=/d", Eagle(model="/d")),
        (
            "eagle:model=/d,top_k=4,depth=3,num_nodes=20",
            Eagle(model="/d", top_k=4, depth=3, num_nodes=20),
        ),
        (
            "eagle:model=/d,shape=chain,draft=sample,gamma=5",
            Eagle(model="/d", shape="chain", gamma=5, draft="sample"),
        ),
        (
            "medusa:model=/d,shape=static,branching=3/2",
            Medusa(model="/d", shape="static", branching=(3, 2)),
        ),
        ("medusa:model=/d,other_target=True", Medusa(model="/d", other_target=True)),
    ],
)
def test_text_and_options_are_the_same(text, config):
    assert parse_drafter(text) == config
    assert format_drafter(config) == text


def test_defaults_are_the_papers():
    dynamic = Eagle(model="x")
    assert (dynamic.levels, dynamic.width, dynamic.most_nodes) == ((10,) * 6, 10, 59)
    sparse = Medusa(model="x")
    assert (sparse.max_path, sparse.most_nodes) == (4, 63)
    for kind in (Eagle, Medusa):
        chain = kind(model="x", shape="chain")
        assert (chain.levels, chain.most_nodes, chain.max_path) == ((1,) * 7, 7, 7)
        static = kind(model="x", shape="static")
        assert (static.levels, static.width, static.most_nodes) == (
            (4, 3, 2, 1, 1, 1, 1),
            None,
            128,
        )
        assert static.draws_candidates is False
        assert kind(model="x", shape="chain", draft="sample").draws_candidates


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("eagle", "model: Field required"),
        ("eagle:model=x,gamma=3", "gamma has no effect on shape=dynamic"),
        ("eagle:model=x,branching=3/2", "branching has no effect on shape=dynamic"),
        ("eagle:model=x,shape=chain,num_nodes=3", "num_nodes has no effect on shape=chain"),
        ("eagle:model=x,shape=sparse", "shape: Input should be 'dynamic', 'static' or 'chain'"),
        ("eagle:model=x,draft=sample", "use draft=greedy or draft=coupled, or shape=static"),
        ("medusa:model=x,num_nodes=9", "num_nodes has no effect on shape=sparse"),
        ("medusa:model=x,draft=coupled", "have no effect on shape=sparse"),
        ("medusa:model=x,min_confidence=0.5", "have no effect on shape=sparse"),
        ("medusa:model=x,shape=dynamic,draft=sample", "which no rule makes lossless"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_drafter(text)


def test_the_folder_is_a_place_and_no_part_of_the_method():
    assert "model" in Eagle.places
    assert "model" in Medusa.places
