"""Options of methods with a model of their own, and their text."""

import pytest

from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.model_drafters import DraftModel, DraftTree, LayerSkip, Synthetic
from specdec_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (
            "draft-model:model=pypi:smollm2-135m,gamma=4",
            DraftModel(model="pypi:smollm2-135m", gamma=4),
        ),
        ("draft-model:model=hf:a/b@v1,draft=greedy", DraftModel(model="hf:a/b@v1", draft="greedy")),
        (
            "draft-tree:model=path:/m,branching=4/2/1,num_nodes=9",
            DraftTree(model="path:/m", branching=(4, 2, 1), num_nodes=9),
        ),
        (
            "draft-tree:model=path:/m,shape=dynamic,top_k=4,depth=0",
            DraftTree(model="path:/m", shape="dynamic", top_k=4, depth=0),
        ),
        ("layer-skip:skip=3,m7,a12,gamma=5", LayerSkip(skip="3,m7,a12", gamma=5)),
        ("layer-skip:skip=a0", LayerSkip(skip="a0")),
        ("synthetic:acceptance=0.5/1.0,horizon=9", Synthetic(acceptance=(0.5, 1.0), horizon=9)),
    ],
)
def test_text_and_options_are_the_same(text, config):
    assert parse_drafter(text) == config
    assert format_drafter(config) == text


def test_lists_may_be_written_with_commas_and_sets_in_any_order():
    assert parse_drafter("draft-tree:model=x,branching=4,2,1,num_nodes=9").branching == (4, 2, 1)
    assert parse_drafter("synthetic:acceptance=0.5,1,horizon=9").acceptance == (0.5, 1.0)
    assert parse_drafter("layer-skip:skip=a12,3, m5,gamma=2").skip == "3,m5,a12"


def test_defaults_are_the_papers():
    tree = DraftTree(model="x")
    assert (tree.levels, tree.width, tree.most_nodes) == ((4, 3, 2, 1, 1, 1, 1), None, 128)
    dynamic = DraftTree(model="x", shape="dynamic")
    assert (dynamic.levels, dynamic.width, dynamic.most_nodes) == ((10,) * 6, 10, 59)
    assert DraftModel(model="x").gamma == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("draft-model", "model: Field required"),
        ("draft-model:model=x,min_confidence=1", "min_confidence: Input should be less than 1"),
        ("draft-tree:model=x,top_k=4", "top_k has no effect on shape=static"),
        ("draft-tree:model=x,depth=0", "depth has no effect on shape=static"),
        ("draft-tree:model=x,shape=dynamic,branching=2", "branching has no effect on shape=dyn"),
        ("draft-tree:model=x,shape=dynamic,draft=sample", "use draft=greedy or draft=coupled"),
        ("draft-tree:model=x,branching=4/0", "greater than or equal to 1"),
        ("layer-skip", "skip: Field required"),
        ("layer-skip:skip=", "nothing is left out.* name units such as 3,m7,a12"),
        ("layer-skip:skip=x1", "skip unit 'x1' .* is not understood"),
        ("layer-skip:skip=3,a3", "names block 3 and one of its halves"),
        ("synthetic:acceptance=0.5/1.5", "less than or equal to 1"),
        ("layer-skip:skip=1,gamma", "'gamma' .* write option=value once"),
    ],
)
def test_mistakes_are_named(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_drafter(text)


def test_none_of_them_can_be_replayed_without_its_model():
    for config in (DraftModel(model="x"), DraftTree(model="x"), LayerSkip(skip="1"), Synthetic()):
        assert not config.is_replayable
    assert [DraftModel(model="x").draws_candidates, DraftTree(model="x").draws_candidates] == [
        True,
        False,
    ]
