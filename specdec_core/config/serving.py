"""What `specdec generate` and `specdec serve` are asked to do."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter
from specdec_core.config.dtype import DTYPE_HELP
from specdec_core.config.evaluation import PREFILL_HELP, Prefill
from specdec_core.config.sampling import format_sampling, parse_sampling
from specdec_core.skip import SkipConfig

BY_HAND = "by-hand"
"""Domain of requests that name none where a skip set is tried by hand."""


class ServingConfig(Record):
    """A target, a drafter, and where the skip profiles of its domains come from."""

    target: str = Field("pypi:smollm2-135m", description="model reference")
    drafter: str = Field(
        "prompt-lookup:num_tokens=3", description="method or method:option=value,.."
    )
    dtype: str = Field("auto", description=DTYPE_HELP)
    domain: str = Field(
        "auto",
        description="task domain of what names none; 'auto' guesses it from the prompt, 'none' is "
        "the dense target",
    )
    profiles: str = Field(
        "store",
        description="where profiles are found: 'store' is the results of this home, else the "
        "address of a REST API, the path of a domain map, or 'none'",
    )
    skip: str | None = Field(
        None, description="skip set tried by hand in place of any profile, such as '3,m7,a12'"
    )
    prefill: Prefill = Field("sparse", description=f"with a skip set by hand: {PREFILL_HELP}")
    protected_layers: tuple[int, ...] = Field(
        (), description="0-based layers that no profile may touch"
    )
    refresh_s: float = Field(
        10.0, gt=0.0, description="seconds for which an answer of a REST API holds"
    )
    min_confidence: float = Field(
        0.8, ge=0.0, le=1.0, description="least confidence of a guessed domain; below it: dense"
    )

    @field_validator("drafter")
    @classmethod
    def _canonical_drafter(cls, text: str) -> str:
        return format_drafter(parse_drafter(text))

    @field_validator("skip")
    @classmethod
    def _canonical_skip(cls, text: str | None) -> str | None:
        return None if text is None else str(SkipConfig.parse(text))

    @model_validator(mode="after")
    def _prefill_is_used(self) -> Self:
        if self.prefill == "dense" and not self.skip:
            raise ValueError(
                "prefill dense goes with a skip set given by hand, profiles say themselves how "
                "prompts are read: give skip, or leave prefill out"
            )
        return self

    @property
    def asked_domain(self) -> str | None:
        """The domain of what names none, None for the dense target.

        A skip set given by hand needs no guess.
        """
        if self.skip is not None and self.domain == "auto":
            return BY_HAND
        return None if self.domain == "none" else self.domain


class GenerateConfig(ServingConfig):
    """One prompt, decoded in this process."""

    max_new_tokens: int = Field(128, ge=1, description="longest output, tokens")
    sampling: str = Field("", description="option=value,..; empty is greedy")
    stop: tuple[str, ...] = Field((), description="texts that end the output")
    raw: bool = Field(
        False,
        description="send the prompt as it stands, without the chat template or the domain's "
        "worked examples and stop strings",
    )

    @field_validator("sampling")
    @classmethod
    def _canonical_sampling(cls, text: str) -> str:
        return format_sampling(parse_sampling(text))

    @model_validator(mode="after")
    def _skip_is_used(self) -> Self:
        if self.skip and self.domain == "none":
            raise ValueError(
                "domain none is the dense target and leaves nothing out: give skip, or domain none"
            )
        return self


class ServeConfig(ServingConfig):
    """A server for trial and evaluation: one request is decoded at a time."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8001, ge=1, le=65535, description="port to listen on")
    queue: int = Field(8, ge=1, le=1024, description="most requests that wait for their turn")
    max_new_tokens: int = Field(
        512, ge=1, description="longest output that may be asked for, tokens"
    )
