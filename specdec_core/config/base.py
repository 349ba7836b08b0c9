"""The base of every validated record that crosses a boundary."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen pydantic model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)
