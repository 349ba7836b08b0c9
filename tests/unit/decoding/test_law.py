"""The distribution test of drafters under sampling, and that it can fail."""

import pytest

from specdec_core.config.drafters import NoDrafter, PromptLookup, TokenRecycling
from specdec_core.config.model_drafters import LayerSkip
from specdec_core.config.sampling import parse_sampling
from specdec_core.decoding.law import check_law
from specdec_core.errors import ConfigError, SearchCancelledError


@pytest.mark.parametrize(
    "sampling", ["temperature=1.0", "temperature=0.7,top_k=3,verification=residual"]
)
def test_a_lossless_rule_keeps_the_law_and_its_control_is_caught(sampling):
    found = check_law(PromptLookup(), parse_sampling(sampling), num_draws=3000)
    assert found.test.num_draws == found.control.num_draws == 3000
    assert found.test.is_passed()
    assert not found.control.is_passed()


def test_a_lossy_rule_is_caught():
    typical = "temperature=1.0,verification=typical,epsilon=0.05"
    assert not check_law(TokenRecycling(), parse_sampling(typical), num_draws=2000).test.is_passed()


def test_without_drafts_even_the_control_passes():
    found = check_law(NoDrafter(), parse_sampling("temperature=1.0"), num_draws=1000)
    assert found.control.is_passed()


def test_greedy_decoding_has_no_law_to_test():
    with pytest.raises(ConfigError, match="draws nothing"):
        check_law(PromptLookup(), parse_sampling(""))


def test_layers_that_a_larger_target_has_can_be_skipped():
    found = check_law(
        LayerSkip(skip="2,a9", gamma=2), parse_sampling("temperature=1.0"), num_draws=250
    )
    assert found.test.is_passed()


def test_the_test_can_be_stopped():
    sampling = parse_sampling("temperature=1.0")
    with pytest.raises(SearchCancelledError):
        check_law(PromptLookup(), sampling, should_stop=lambda: True)
