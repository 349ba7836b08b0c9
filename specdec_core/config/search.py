"""Parameters of a TSS search: flat, with ranges, the same for flow, command line and store."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from specdec_core.config.base import Record
from specdec_core.config.drafters import format_drafter, parse_drafter

UnitChoice = Literal["block", "attention", "mlp", "halves", "all"]


class SearchConfig(Record):
    """One TSS search as the user asks for it.

    Source: TSS (beam, depth, tolerances); halves of blocks are ours.
    """

    domain: str = Field(description="task domain, names the suite, template and profile")
    target: str = Field("pypi:gemma3-270m", description="model reference")
    drafter: str = Field(
        "prompt-lookup:num_tokens=3", description="method or method:option=value,.."
    )
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
    dtype: str = Field("auto", description="'auto' is the checkpoint's own")

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
