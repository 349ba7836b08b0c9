"""Every strategy by name."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_core.config.search import SearchConfig
from specdec_core.errors import ConfigError
from specdec_core.search.gm_skip import GmSkipSearch
from specdec_core.search.objectives import (
    AcceptanceGain,
    BothGains,
    MetricAndSparsity,
    MetricGain,
    Objective,
    SpeedGain,
    Tolerances,
)
from specdec_core.search.random_draws import RandomSearch
from specdec_core.search.sleb import SlebSearch
from specdec_core.search.step_model import StepTimeModel
from specdec_core.search.strategy import Strategy
from specdec_core.search.tss import TssSearch
from specdec_core.skip import SkipUnit


def make_strategy(
    config: SearchConfig,
    units: Sequence[SkipUnit],
    *,
    num_layers: int,
    step_model: StepTimeModel | None = None,
) -> Strategy:
    """Return the strategy that `config` names, at its beginning.

    Args:
        config: Strategy, budget, tolerances and seed.
        units: Units that may be skipped.
        num_layers: Transformer layers of the target.
        step_model: Measured step times; needed by ``throughput`` and by no other.

    Raises:
        ConfigError: if ``throughput`` has no step times, or the units cannot be used.
    """
    if config.strategy == "sleb":
        return SlebSearch(units, depth=config.depth)
    if config.strategy == "gm-skip":
        weighing = MetricAndSparsity(config.sparsity_weight, num_layers)
        return GmSkipSearch(units, depth=config.depth, objective=weighing)
    if config.strategy == "random":
        return RandomSearch(units, depth=config.depth, num_draws=config.num_draws, seed=config.seed)
    objective = make_objective(config, step_model)
    return TssSearch(
        units,
        beam=config.beam,
        depth=config.depth,
        objective=objective,
        # Sets that are dropped for others should come after them; else neighbours in the model
        # follow each other, which share more work.
        asking="promise" if config.bound else "model",
    )


def make_objective(config: SearchConfig, step_model: StepTimeModel | None = None) -> Objective:
    """Return what the breadth searches maximise, each with the tolerances that go with it.

    Raises:
        ConfigError: if ``throughput`` has no step times.
    """
    if config.strategy == "accept-only":
        return AcceptanceGain(Tolerances(acceptance=config.epsilon_acceptance))
    only_metric = Tolerances(metric=config.epsilon_metric)
    if config.strategy == "metric-only":
        return MetricGain(only_metric)
    if config.strategy == "throughput":
        if step_model is None:
            raise ConfigError("strategy throughput needs measured step times: calibrate first")
        return SpeedGain(only_metric, step_model)
    return BothGains(Tolerances(config.epsilon_acceptance, config.epsilon_metric))
