"""What the manifest of every exported draft says of it beside its files and tensors."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from specdec_core.config.base import Record

SharedPart = Literal["embedding", "head"]


class DraftFacts(Record):
    """A draft's vocabulary, what it takes from its target, and the training that made it."""

    vocab_size: int = Field(ge=1, description="ids that it reads")
    num_drafted_ids: int = Field(
        ge=1, description="ids that it proposes; fewer where its vocabulary is narrowed"
    )
    shared: tuple[SharedPart, ...] = Field(
        description="parts that are not in these files: whoever loads them takes the target's"
    )
    run_id: str = Field("", description="training run in its maker's store; empty if from none")
    training_key: str = Field("", description="content key of that training")
