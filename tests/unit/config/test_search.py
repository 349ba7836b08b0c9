"""Searches and sweeps as users ask for them."""

import pytest

from specdec_core.config.domains import sensitivity_config
from specdec_core.config.search import IGNORE_TOLERANCES
from specdec_core.errors import ConfigError


@pytest.mark.parametrize("strategy", sorted(IGNORE_TOLERANCES))
def test_a_sweep_over_tolerances_needs_a_strategy_that_knows_them(strategy):
    with pytest.raises(ConfigError, match=f"strategy {strategy} knows no tolerances: choose"):
        sensitivity_config("translation", {"strategy": strategy})


def test_the_others_are_swept():
    assert sensitivity_config("qa", {"strategy": "metric-only"}).search.strategy == "metric-only"
