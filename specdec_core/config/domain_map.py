"""The domain map: one file that says what each domain skips, for one model and drafter."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, field_validator

from specdec_core.config.base import Record
from specdec_core.config.evaluation import PREFILL_HELP, Prefill


class DomainEntry(Record):
    """One domain: what it skips, and the figures that speak for it."""

    skip: tuple[int | str, ...] = Field(description="0-based blocks, or halves such as 'a13'")
    A: float | None = Field(None, description="acceptance length with the skip set")
    M: float | None = Field(None, description="metric with the skip set")
    A0: float | None = Field(None, description="acceptance length of the dense target")
    M0: float | None = Field(None, description="metric of the dense target")
    metric_name: Literal["metric", "agreement"] = Field(
        "metric",
        description="what M and M0 are: the task metric, or agreement with the dense output",
    )
    eps: tuple[float, float] | None = Field(
        None, description="signed relative tolerances on acceptance and metric"
    )
    sel_ids: tuple[str, ...] = Field((), description="items of the selection")
    prefill: Prefill = Field("sparse", description=PREFILL_HELP)
    status: str = Field(description="'validated' or 'active' where it may be used")

    @property
    def skip_text(self) -> str:
        """The skip set as text."""
        return ",".join(map(str, self.skip))


class DomainMap(Record):
    """What the domains of one model and drafter skip; a domain without an entry is dense.

    Source: TSS (domain map); identity and type are ours.
    """

    # Files of later versions may say more about a domain's origin.
    model_config = ConfigDict(extra="ignore", frozen=True)

    model: str = Field(min_length=1, description="model reference or identity")
    model_identity: str = Field("", description="content hash of the model's files, if known")
    dtype: str = Field("", description="type the profiles were validated in, if known")
    drafter: str
    num_layers: int = Field(ge=1)
    created_by: str = Field("", description="revision of the code that wrote it")
    default: tuple[int | str, ...] = ()
    domains: dict[str, DomainEntry]

    @field_validator("default")
    @classmethod
    def _default_is_dense(cls, default: tuple[int | str, ...]) -> tuple[int | str, ...]:
        if default:
            raise ValueError(
                f"default skips {list(default)}: unknown domains run dense, so it must be []"
            )
        return default
