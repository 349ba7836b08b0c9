"""Searches and sweeps as users ask for them."""

import pytest

from specdec_core.config.domains import DOMAINS, search_config, sensitivity_config
from specdec_core.config.search import IGNORE_TOLERANCES
from specdec_core.errors import ConfigError


@pytest.mark.parametrize("strategy", sorted(IGNORE_TOLERANCES))
def test_a_sweep_over_tolerances_needs_a_strategy_that_knows_them(strategy):
    with pytest.raises(ConfigError, match=f"strategy {strategy} knows no tolerances: choose"):
        sensitivity_config("translation", {"strategy": strategy})


def test_the_others_are_swept():
    assert sensitivity_config("qa", {"strategy": "metric-only"}).search.strategy == "metric-only"


def test_parameters_that_are_wrong_together_are_told_in_words_and_not_as_a_record():
    with pytest.raises(ConfigError, match=r"^bound=true decides between batches .* lower batch_si"):
        search_config("translation", {"bound": True, "batch_size": 16, "num_selection": 16})


def test_chat_goes_by_acceptance_unless_a_tolerance_on_agreement_is_given():
    default = search_config("chat")
    assert (default.strategy, default.epsilon_acceptance, default.epsilon_metric) == (
        "accept-only",
        -0.05,
        -1.0,
    )
    assert search_config("chat", {"tolerance": -0.2}).epsilon_metric == -0.2
    assert search_config("chat", {"tolerance_metric": -0.3}).epsilon_metric == -0.3
    assert search_config("chat", {"tolerance_acceptance": 0.0}).epsilon_metric == -1.0
    assert search_config("chat", {"strategy": "tss"}).strategy == "tss"
    assert {search_config(domain).strategy for domain in DOMAINS if domain != "chat"} == {"tss"}
