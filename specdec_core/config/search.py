"""Parameters of searches: flat, with ranges, the same for flow, command line and store."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.dtype import DTYPE_HELP

UnitChoice = Literal["block", "attention", "mlp", "halves", "all"]
StrategyName = Literal[
    "tss", "sleb", "gm-skip", "random", "accept-only", "metric-only", "throughput"
]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
NEED_METRIC: frozenset[StrategyName] = frozenset({"gm-skip", "metric-only"})
"""Strategies that a domain without a metric leaves nothing to go by."""
IGNORE_TOLERANCES: frozenset[StrategyName] = frozenset({"sleb", "gm-skip", "random"})
"""Strategies that go by a budget alone."""
TOLERANCES = (0.05, 0.0, -0.05, -0.10, -0.20)
"""Those of the paper's sensitivity table, strictest first."""


class SearchConfig(Record):
    """One search as the user asks for it.

    Source: TSS (beam, depth, tolerances); halves of blocks are ours.
    """

    domain: str = Field(description="task domain, names the suite, template and profile")
    target: str = Field("pypi:gemma3-270m", description="model reference")
    drafter: str = Field(
        "prompt-lookup:num_tokens=3", description="method or method:option=value,.."
    )
    strategy: StrategyName = Field("tss", description="how the skip set is chosen")
    units: UnitChoice = Field("attention", description="what may be skipped")
    tolerance: float = Field(
        -0.05, ge=-1.0, le=1.0, description="signed relative slack on both; negative is looser"
    )
    tolerance_acceptance: float | None = Field(
        None, ge=-1.0, le=1.0, description="slack on acceptance alone; default tolerance"
    )
    tolerance_metric: float | None = Field(
        None, ge=-1.0, le=1.0, description="slack on the metric alone; default tolerance"
    )
    beam: int = Field(4, ge=1, le=64, description="configurations expanded per level")
    depth: int = Field(4, ge=1, le=64, description="most units skipped")
    num_selection: int = Field(16, ge=2, description="selection items")
    num_heldout: int = Field(64, ge=2, description="held-out items, at most")
    protect_ends: bool = Field(True, description="never skip units of the first and last layer")
    max_new_tokens: int = Field(48, ge=1, le=4096, description="longest output, tokens")
    batch_size: int = Field(16, ge=1, le=1024, description="requests decoded together")
    suite: str | None = Field(None, description="path of a JSONL suite; default by domain")
    seed: int = Field(42, description="seed of the selection / held-out split")
    activate: bool = Field(True, description="activate the profile; else it is only validated")
    dtype: str = Field("auto", description=DTYPE_HELP)
    num_draws: int = Field(5, ge=5, le=1000, description="strategy random: sets drawn per size")
    sparsity_weight: float = Field(
        1.0,
        ge=0.0,
        le=100.0,
        description="strategy gm-skip: relative metric that skipping every layer would be worth",
    )

    @field_validator("drafter")
    @classmethod
    def _canonical_drafter(cls, text: str) -> str:
        return format_drafter(parse_drafter(text))

    @property
    def epsilon_acceptance(self) -> float:
        """Signed relative tolerance on acceptance."""
        return self.tolerance if self.tolerance_acceptance is None else self.tolerance_acceptance

    @property
    def epsilon_metric(self) -> float:
        """Signed relative tolerance on the task metric."""
        return self.tolerance if self.tolerance_metric is None else self.tolerance_metric


class CompareConfig(Record):
    """One search done by several strategies, side by side under one evaluator.

    Source: TSS (its table of strategies).
    """

    search: SearchConfig = Field(description="what they share; its own strategy takes no part")
    strategies: tuple[StrategyName, ...] = Field(
        STRATEGIES, min_length=1, description="strategies to compare"
    )

    @field_validator("strategies")
    @classmethod
    def _distinct(cls, names: tuple[StrategyName, ...]) -> tuple[StrategyName, ...]:
        if len(set(names)) != len(names):
            raise ValueError("name each strategy once")
        return names


class SensitivityConfig(Record):
    """One search at several tolerances, and at its own for scale.

    Source: TSS (its table of tolerances).
    """

    search: SearchConfig = Field(description="the search; its own tolerances are the base")
    tolerances: tuple[float, ...] = Field(
        TOLERANCES, min_length=1, description="signed relative slack on acceptance and metric, each"
    )

    @field_validator("tolerances")
    @classmethod
    def _in_range(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(values)) != len(values) or not all(-1.0 <= one <= 1.0 for one in values):
            raise ValueError("give different tolerances between -1 and 1")
        return values

    @model_validator(mode="after")
    def _tolerances_count(self) -> Self:
        if self.search.strategy in IGNORE_TOLERANCES:
            raise ValueError(
                f"strategy {self.search.strategy} knows no tolerances: choose one that does, or "
                "compare strategies with 'specdec compare'"
            )
        return self
