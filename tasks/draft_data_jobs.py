"""What travels between the driver of training data and its workers."""

from __future__ import annotations

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.config.draft_data import DataConfig
from specdec_core.config.dtype import DType
from specdec_core.config.settings import KernelChoice
from specdec_core.training.manifest import DataCounts
from specdec_core.training.prompts import Prompt


class ShardRequest(Record):
    """One shard to make: prompts to answer, and where the result goes."""

    data_key: str = Field(description="of the whole data")
    index: int = Field(ge=0, description="of the shard")
    folder: str = Field(description="of the data; workers on other machines share it")
    config: DataConfig
    target: str = Field(description="model reference, canonical text")
    target_identity: str
    dtype: DType
    device: str
    kernels: KernelChoice
    prompts: tuple[Prompt, ...] = Field(min_length=1)

    @property
    def key(self) -> str:
        """Name of the shard among all data."""
        return f"{self.data_key}-{self.index}"


class ShardResult(Record):
    """What became of a shard; its samples are on disk."""

    key: str
    index: int
    counts: DataCounts
