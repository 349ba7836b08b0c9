"""Parameters of a benchmark: methods by domains on one target, at batch 1."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.dtype import DTYPE_HELP
from specdec_core.config.evaluation import PREFILL_HELP, Prefill
from specdec_core.config.sampling import format_sampling, parse_sampling

Preset = Literal["spec-bench", "spec-bench-paper", "ptd-ablation"]


class Topic(NamedTuple):
    """What prompts a benchmark row is about, as `BenchmarkConfig.domains` names it.

    Attributes:
        domain: Says how prompts are asked and answers are read.
        suite: Where the prompts are; None searches the domain's own places.
        category: Only items of this category; ``*`` makes a row of each; None takes all.
    """

    domain: str
    suite: str | None = None
    category: str | None = None

    @classmethod
    def parse(cls, text: str) -> Topic:
        """Return the topic written as ``domain[@suite[#category]]``.

        Raises:
            ValueError: if a part is empty.
        """
        domain, has_suite, rest = text.partition("@")
        suite, has_category, category = rest.rpartition("#") if "#" in rest else (rest, "", "")
        if not domain or (has_suite and not suite) or (has_category and not category):
            raise ValueError(
                f"{text!r} is not understood: write domain, domain@suite or domain@suite#category"
            )
        return cls(domain, suite or None, category or None)


class BenchmarkConfig(Record):
    """A grid of methods and domains as the user asks for it."""

    target: str = Field("pypi:gemma3-270m", description="model reference")
    methods: tuple[str, ...] = Field(
        ("prompt-lookup", "token-recycling"),
        min_length=1,
        description="drafters, method or method:option=value,..; `none` is always measured too",
    )
    domains: tuple[str, ...] = Field(
        ("translation", "summarization", "qa", "math", "code", "chat"),
        min_length=1,
        description="domain, or domain@suite with a file, folder, hub set or public set such as "
        "chat@spec_bench, or domain@suite#category, where category * takes each by itself",
    )
    num_items: int = Field(8, ge=1, description="items per domain")
    max_new_tokens: int = Field(64, ge=2, le=4096, description="longest output, tokens")
    repeats: int = Field(3, ge=1, le=100, description="timed passes over the items per method")
    sampling: str = Field(
        "", description="option=value,.. such as temperature=0.8,top_p=0.9; empty for greedy"
    )
    skip: str = Field("", description="canonical skip set of the target, empty for dense")
    prefill: Prefill = Field("sparse", description=f"with a skip set: {PREFILL_HELP}")
    suite: str | None = Field(None, description="path of a suite file or folder; default by domain")
    dtype: str = Field("auto", description=DTYPE_HELP)
    session: str = Field(
        "", description="name of the measurement; a new name measures again, the same one resumes"
    )
    baseline: str | None = Field(
        None, description="name of the stored baseline to compare with; made if it is missing"
    )
    verify: bool = Field(
        False,
        description="whether a defect or an unproven output is a failure; under sampling the "
        "distribution of methods that draw otherwise than plain decoding is tested too",
    )
    preset: Preset | None = Field(
        None, description="named set of defaults for methods, domains and sizes"
    )
    min_effect: float = Field(
        0.05, ge=0.0, lt=1.0, description="smallest relative loss that counts as a regression"
    )

    @field_validator("methods")
    @classmethod
    def _canonical(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        names = [format_drafter(parse_drafter(text)) for text in methods]
        return tuple(dict.fromkeys(name for name in names if name != "none"))

    @field_validator("sampling")
    @classmethod
    def _canonical_sampling(cls, text: str) -> str:
        return format_sampling(parse_sampling(text))

    @model_validator(mode="after")
    def _prefill_is_used(self) -> Self:
        if self.prefill == "dense" and not self.skip:
            raise ValueError(
                "prefill dense says how a sparse target reads prompts, but nothing is skipped: "
                "give skip, or leave prefill out"
            )
        return self

    @model_validator(mode="after")
    def _suites_are_given_once(self) -> Self:
        named = [text for text in self.domains if Topic.parse(text).suite is not None]
        if named and self.suite is not None:
            raise ValueError(
                f"{named[0]!r} names its suite and suite={self.suite!r} is given too: leave one out"
            )
        return self
