"""What one calibration of a target is asked to measure."""

from __future__ import annotations

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.config.dtype import DTYPE_HELP, DType
from specdec_core.hashing import json_hash


class CalibrationConfig(Record):
    """A calibration as the user asks for it."""

    domain: str = Field("translation", description="domain whose prompts are used")
    target: str = Field("pypi:gemma3-270m", description="model reference")
    nodes: tuple[int, ...] = Field(
        (1, 2, 4, 8, 13, 16, 24, 32, 48, 64),
        min_length=1,
        description="new tokens per forward at which step time is measured",
    )
    context: int = Field(256, ge=1, le=32768, description="committed tokens in the cache, tokens")
    repeats: int = Field(10, ge=3, le=1000, description="timed forwards per point")
    num_prompts: int = Field(8, ge=1, description="prompts for layer statistics")
    suite: str | None = Field(None, description="path of a JSONL suite; default by domain")
    dtype: str = Field("auto", description=DTYPE_HELP)


class CalibrationRequest(Record):
    """Everything a worker needs to measure one (sparse) target."""

    target: str = Field(description="model reference, canonical text")
    target_identity: str = Field(description="content hash of configuration, weights, tokenizer")
    dtype: DType
    device: str = Field("cpu", description="torch device of the worker")
    skip: str = Field("", description="canonical skip set, empty for dense")
    nodes: tuple[int, ...] = Field(min_length=1, description="new tokens per forward")
    context: int = Field(ge=1, description="committed tokens in the cache, tokens")
    repeats: int = Field(ge=3, description="timed forwards per point")
    suite: str = Field(description="where the suite is found: a path or a built-in domain")
    suite_hash: str = Field(description="content hash of the suite")
    domain: str
    item_ids: tuple[str, ...] = Field(description="prompts for layer statistics")

    @property
    def key(self) -> str:
        """Hex SHA-256 over every field."""
        return json_hash(self.model_dump(mode="json"))
