"""The bases of validated records that cross a boundary."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """A frozen pydantic model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FiniteRecord(Record):
    """A record of what somebody asks for: no number in it is infinite or none at all.

    Stores hold it as JSON, which has no such numbers.
    """

    model_config = ConfigDict(allow_inf_nan=False)


Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Of random numbers; the largest integer that stores have a column for."""


class DrafterOptions(Record):
    """Options of one drafting method; subclasses name it in `method`.

    Attributes:
        places: Options that say where something is found, such as a path. Two records that differ
            in them alone are the same method if the same content is found there.
        drafts_trees: Whether proposals may branch.
    """

    places: ClassVar[frozenset[str]] = frozenset()
    drafts_trees: ClassVar[bool] = False

    @property
    def is_replayable(self) -> bool:
        """Whether proposals can be had again from an output and its rankings, without a model."""
        return False

    @property
    def max_path(self) -> int | None:
        """Most draft tokens on one path of a proposal; None where only the output bounds it."""
        return None

    @property
    def is_synthetic(self) -> bool:
        """Whether acceptance is made up, to study cost: figures are no method's result."""
        return False

    @property
    def draws_candidates(self) -> bool:
        """Whether candidates are drawn from a distribution wherever decoding samples."""
        return False
