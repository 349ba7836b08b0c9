"""Parameters of the evaluation after a draft's training: what is decoded, and the tolerance."""

from __future__ import annotations

import math
from itertools import accumulate
from operator import mul
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from specdec_core.config.base import FiniteRecord, Seed
from specdec_core.config.benchmark import Topic
from specdec_core.config.dtype import DTYPE_HELP
from specdec_core.config.losses import LEAST_TEMPERATURE
from specdec_core.config.tree_options import split_list

DraftedShape = Literal["chain", "tree"]

# Training expects of a tree what its whole branching holds; the published 128 of 136 nodes leave
# out the least likely ones alone.
_LEAST_KEPT = 0.9


class DraftEvaluationConfig(FiniteRecord):
    """What a trained draft is asked to do in the real decode loop.

    Source: EAL (arXiv 2609.24150), evaluation: MT-Bench, GSM8K, HumanEval, LongBench-Write and
    STEM questions; greedy, temperatures 0.5 and 1; chains of 7 and trees (4, 3, 2, 1, 1, 1, 1) of
    128 nodes, here under lossless rules only.
    """

    target: str = Field("pypi:smollm2-135m", description="model reference")
    dtype: str = Field("auto", description=DTYPE_HELP)
    domains: tuple[str, ...] = Field(
        (
            "chat@spec_bench",
            "math@gsm8k",
            "code@humaneval",
            "chat@longbench_write",
            "mmlu@stem_qa",
        ),
        min_length=1,
        description="domain, domain@suite or domain@suite#category, as for a benchmark",
    )
    shapes: tuple[DraftedShape, ...] = Field(("chain", "tree"), min_length=1)
    temperatures: Annotated[tuple[float, ...], BeforeValidator(split_list)] = Field(
        (0.0, 0.5, 1.0), min_length=1, description="0 takes the likeliest token"
    )
    gamma: int = Field(7, ge=1, le=64, description="tokens of a chain")
    branching: Annotated[tuple[int, ...], BeforeValidator(split_list)] = Field(
        (4, 3, 2, 1, 1, 1, 1), min_length=1, max_length=64, description="children per depth"
    )
    num_nodes: int = Field(128, ge=1, le=1024, description="most draft nodes of a tree")
    num_items: int = Field(8, ge=1, description="prompts per domain")
    max_new_tokens: int = Field(128, ge=2, le=4096, description="longest output, tokens")
    repeats: int = Field(1, ge=1, le=100, description="timed passes per method, order alternating")
    seed: Seed = Field(0, description="of sampled outputs")
    session: str = Field(
        "", description="name of the measurement; a new name measures again, the same one resumes"
    )
    tolerance: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="largest gap between expected and realised acceptance of one depth that "
        "rounding explains, beyond four standard errors",
    )
    min_trials: int = Field(
        40, ge=1, description="steps that must have reached a depth before its gap counts"
    )

    @field_validator("domains")
    @classmethod
    def _readable(cls, domains: tuple[str, ...]) -> tuple[str, ...]:
        for text in domains:
            Topic.parse(text)
        return domains

    @field_validator("temperatures")
    @classmethod
    def _in_range(cls, temperatures: tuple[float, ...]) -> tuple[float, ...]:
        outside = [t for t in temperatures if t and not LEAST_TEMPERATURE <= t <= 100.0]
        if outside or len(set(temperatures)) < len(temperatures):
            raise ValueError(
                f"temperatures {temperatures} must differ and be 0 or {LEAST_TEMPERATURE:g} to 100"
            )
        return temperatures

    @model_validator(mode="after")
    def _whole_trees(self) -> Self:
        size = sum(accumulate(self.branching, mul))
        if "tree" in self.shapes and self.num_nodes < _LEAST_KEPT * size:
            branching = "/".join(map(str, self.branching))
            raise ValueError(
                f"num_nodes {self.num_nodes} leaves out more than a tenth of the tree that "
                f"branching {branching} spans ({size} nodes), and what training expects is of the "
                f"whole one: give at least {math.ceil(_LEAST_KEPT * size)}, or a smaller branching"
            )
        return self
