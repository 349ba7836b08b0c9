"""Parameters of a benchmark: methods by domains on one target, at batch 1."""

from __future__ import annotations

from pydantic import Field, field_validator

from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter


class BenchmarkConfig(Record):
    """A grid of methods and domains as the user asks for it."""

    target: str = Field("pypi:gemma3-270m", description="model reference")
    methods: tuple[str, ...] = Field(
        ("prompt-lookup", "token-recycling"),
        min_length=1,
        description="drafters, method or method:option=value,..; `none` is always measured too",
    )
    domains: tuple[str, ...] = Field(
        ("translation", "summarization", "qa", "math", "code", "chat"), min_length=1
    )
    num_items: int = Field(8, ge=1, description="items per domain")
    max_new_tokens: int = Field(64, ge=2, le=4096, description="longest output, tokens")
    repeats: int = Field(3, ge=1, le=100, description="timed passes over the items per method")
    skip: str = Field("", description="canonical skip set of the target, empty for dense")
    suite: str | None = Field(None, description="path of a suite file or folder; default by domain")
    dtype: str = Field("auto", description="'auto' is the checkpoint's own")
    session: str = Field(
        "", description="name of the measurement; a new name measures again, the same one resumes"
    )
    baseline: str | None = Field(
        None, description="name of the stored baseline to compare with; made if it is missing"
    )
    min_effect: float = Field(
        0.05, ge=0.0, lt=1.0, description="smallest relative loss that counts as a regression"
    )

    @field_validator("methods")
    @classmethod
    def _canonical(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        names = [format_drafter(parse_drafter(text)) for text in methods]
        return tuple(dict.fromkeys(name for name in names if name != "none"))
