import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_core.errors import ConfigError
from specdec_core.skip import SkipConfig, SkipUnit, UnitKind

UNITS = st.builds(SkipUnit, st.integers(0, 9), st.sampled_from(list(UnitKind)))


def test_text_is_sorted_by_layer_then_block_attention_mlp():
    assert str(SkipConfig.parse("a12, m7 ,3")) == "3,m7,a12"
    assert str(SkipConfig.parse("10,2")) == "2,10"


def test_empty_text_is_dense():
    assert SkipConfig.parse("") == SkipConfig.parse("  ") == SkipConfig()
    assert SkipConfig().label == "dense"


def test_both_halves_of_a_layer_are_the_block():
    assert str(SkipConfig.parse("a4,m4,a5")) == "4,a5"


@pytest.mark.parametrize("text", ["x3", "-1", "3.5", "3,,4", "03", "a", "3;4"])
def test_unreadable_unit_is_refused_with_the_syntax(text):
    with pytest.raises(ConfigError, match="write 0-based layers"):
        SkipConfig.parse(text)


def test_repeated_unit_and_block_with_its_half_are_refused():
    with pytest.raises(ConfigError, match="name each unit once"):
        SkipConfig.parse("3,3")
    with pytest.raises(ConfigError, match="names block 3 and one of its halves"):
        SkipConfig.parse("3,a3")


def test_what_is_skipped():
    skip = SkipConfig.parse("1,a2,m3")
    assert [skip.skips_attention(layer) for layer in range(4)] == [False, True, True, False]
    assert [skip.skips_mlp(layer) for layer in range(4)] == [False, True, False, True]


def test_sparsity_counts_a_half_as_half_a_layer():
    # (1 + 0.5 + 0.5) / 8
    assert SkipConfig.parse("1,a2,m3").sparsity(8) == 0.25


def test_validation_names_the_missing_layer_and_refuses_an_empty_model():
    SkipConfig.parse("0,m1").validate(2)
    with pytest.raises(ConfigError, match="names layer 2, but the target has layers 0 to 1"):
        SkipConfig.parse("a2").validate(2)
    with pytest.raises(ConfigError, match="leaves out every layer"):
        SkipConfig.parse("0,1").validate(2)


def test_plus_adds_completes_replaces_or_declines():
    attention, mlp, block = (SkipUnit(3, UnitKind(kind)) for kind in ("a", "m", ""))
    assert str(SkipConfig().plus(attention)) == "a3"
    assert str(SkipConfig.parse("a3").plus(mlp)) == "3"
    assert str(SkipConfig.parse("a3").plus(block)) == "3"
    assert SkipConfig.parse("a3").plus(attention) is None
    assert SkipConfig.parse("3").plus(mlp) is None


@given(st.lists(UNITS, max_size=8, unique=True))
def test_canonical_text_reads_back_in_any_order(units):
    try:
        skip = SkipConfig.of(units)
    except ConfigError:
        return  # a block together with its half
    assert SkipConfig.parse(str(skip)) == skip == SkipConfig.of(reversed(units))
