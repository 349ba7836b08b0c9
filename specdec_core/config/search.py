"""Parameters of searches: flat, with ranges, the same for flow, command line and store."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.dtype import DTYPE_HELP
from specdec_core.config.evaluation import PREFILL_HELP, Prefill
from specdec_core.config.layers import format_layers, parse_layers

UnitChoice = Literal["block", "attention", "mlp", "halves", "all"]
StrategyName = Literal[
    "tss", "sleb", "gm-skip", "random", "accept-only", "metric-only", "throughput"
]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
IGNORE_TOLERANCES: frozenset[StrategyName] = frozenset({"sleb", "gm-skip", "random"})
"""Strategies that go by a budget alone."""
BOUNDED: frozenset[StrategyName] = frozenset({"tss", "accept-only", "metric-only"})
"""Strategies that can drop a set before all of its items are decoded."""
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
    prefill: Prefill = Field("sparse", description=PREFILL_HELP)
    tolerance: float = Field(
        -0.05, ge=-1.0, le=1.0, description="signed relative slack on both; negative is looser"
    )
    tolerance_acceptance: float | None = Field(
        None, ge=-1.0, le=1.0, description="slack on acceptance alone; default tolerance"
    )
    tolerance_metric: float | None = Field(
        None,
        ge=-1.0,
        le=1.0,
        description="slack on the metric, or agreement, alone; default tolerance",
    )
    beam: int = Field(4, ge=1, le=64, description="configurations expanded per level")
    depth: int = Field(4, ge=1, le=64, description="most units skipped")
    num_selection: int = Field(16, ge=2, description="selection items")
    num_heldout: int = Field(64, ge=2, description="held-out items, at most")
    candidates: str = Field(
        "", description="layers that may be skipped, 0-based, such as 1-10,14; default all"
    )
    protected: str = Field(
        "", description="layers never skipped, such as 0,5-7, candidates or not; default none"
    )
    protect_ends: bool = Field(True, description="never skip units of the first and last layer")
    max_new_tokens: int = Field(48, ge=1, le=4096, description="longest output, tokens")
    batch_size: int = Field(16, ge=1, le=1024, description="requests decoded together")
    bound: bool = Field(
        False,
        description="decode a set batch by batch and drop it once it is certain that it changes "
        "nothing; needs batch_size below num_selection",
    )
    suite: str | None = Field(None, description="path of a JSONL suite; default by domain")
    seed: int = Field(42, description="seed of the selection / held-out split")
    control: str | None = Field(
        None,
        description="second domain, or domain=path of its JSONL suite, that the set found must not "
        "harm; reported only; 'none' for none",
    )
    num_control: int = Field(32, ge=2, description="held-out items of that domain, at most")
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

    @field_validator("candidates", "protected")
    @classmethod
    def _canonical_layers(cls, text: str) -> str:
        return format_layers(parse_layers(text))

    @model_validator(mode="after")
    def _bound_has_parts(self) -> Self:
        if self.bound and self.batch_size >= self.num_selection:
            raise ValueError(
                f"bound=true decides between batches of selection items, but a batch of "
                f"{self.batch_size} holds all {self.num_selection}: lower batch_size, for instance "
                f"to {max(1, self.num_selection // 4)}"
            )
        return self

    @field_validator("control")
    @classmethod
    def _none_in_words(cls, text: str | None) -> str | None:
        return None if text == "none" else text

    @model_validator(mode="after")
    def _control_is_another(self) -> Self:
        if self.control is not None and self.control_domain == self.domain:
            raise ValueError(
                f"control domain {self.control_domain!r} is the one that is searched: name another "
                "one, or 'none'"
            )
        return self

    @property
    def control_domain(self) -> str | None:
        """Domain of the negative control, None for none."""
        return self.control.partition("=")[0] if self.control else None

    @property
    def control_suite(self) -> str | None:
        """Path of its suite; None finds that of the domain."""
        return (self.control or "").partition("=")[2] or None

    @property
    def without_control(self) -> Self:
        """The same search without a negative control, as where nothing is published."""
        return self.model_copy(update={"control": None})

    @property
    def epsilon_acceptance(self) -> float:
        """Signed relative tolerance on acceptance."""
        return self.tolerance if self.tolerance_acceptance is None else self.tolerance_acceptance

    @property
    def epsilon_metric(self) -> float:
        """Signed relative tolerance on the metric; on agreement where the domain has none."""
        return self.tolerance if self.tolerance_metric is None else self.tolerance_metric


class CompareConfig(Record):
    """One search done by several strategies, side by side under one evaluator.

    Source: TSS (its table of strategies).
    """

    search: SearchConfig = Field(description="what they share; its own strategy takes no part")
    strategies: tuple[StrategyName, ...] = Field(
        STRATEGIES, min_length=1, description="strategies to compare"
    )

    @field_validator("search")
    @classmethod
    def _no_control(cls, search: SearchConfig) -> SearchConfig:
        return search.without_control

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

    @field_validator("search")
    @classmethod
    def _no_control(cls, search: SearchConfig) -> SearchConfig:
        return search.without_control

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
