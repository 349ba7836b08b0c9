"""Options of the drafters that were trained on a target's hidden states."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from specdec_core.config.tree_options import Confidence, TreeOptions

_CHAIN_TOKENS = 7
# Medusa's published tree for four heads and more.
_SPARSE_NODES, _SPARSE_DEPTH = 63, 4


class LearnedOptions(TreeOptions):
    """Chains beside trees, from a checkpoint that training wrote."""

    own_options: ClassVar[dict[str, tuple[str, ...]]] = {
        **TreeOptions.own_options,
        "chain": ("gamma",),
    }
    model: str = Field(min_length=1, description="folder of the trained drafter")
    gamma: int | None = Field(
        None, ge=1, le=64, description="chain: longest chain, tokens; default 7"
    )
    min_confidence: Confidence = 0.0
    other_target: bool = Field(
        False,
        description="whether to draft for a target it was not trained for, if sizes are the same",
    )

    @property
    def levels(self) -> tuple[int, ...]:
        """Children of a node per depth."""
        if self.shape == "chain":
            return (1,) * (self.gamma or _CHAIN_TOKENS)
        return super().levels

    @property
    def most_nodes(self) -> int:
        """Most draft nodes offered."""
        return len(self.levels) if self.shape == "chain" else super().most_nodes


class Eagle(LearnedOptions):
    """A tree written by a trained layer on the target's hidden states (EAGLE-1, -2 and -3)."""

    method: Literal["eagle"] = "eagle"
    shape: Literal["dynamic", "static", "chain"] = Field(
        "dynamic", description="where the tree grows; a chain does not branch"
    )


class Medusa(LearnedOptions):
    """A tree of what trained heads say of the next places, all from one hidden state (Medusa).

    ``sparse`` is the tree of the release, 63 nodes over the first four heads. The others are grown
    by how likely the heads say tokens are; none is deeper than there are heads.
    """

    method: Literal["medusa"] = "medusa"
    own_options: ClassVar[dict[str, tuple[str, ...]]] = {**LearnedOptions.own_options, "sparse": ()}
    shape: Literal["sparse", "static", "dynamic", "chain"] = Field(
        "sparse", description="where the tree grows; a chain does not branch"
    )

    @model_validator(mode="after")
    def _check_sparse(self) -> Medusa:
        if self.shape == "sparse" and (self.draft != "greedy" or self.min_confidence > 0.0):
            raise ValueError(
                "draft and min_confidence have no effect on shape=sparse, whose nodes are ranks: "
                "leave them out or choose another shape"
            )
        return self

    @property
    def max_path(self) -> int:
        """Levels of the tree; fewer where there are fewer heads."""
        return _SPARSE_DEPTH if self.shape == "sparse" else super().max_path

    @property
    def most_nodes(self) -> int:
        """Most draft nodes offered."""
        return _SPARSE_NODES if self.shape == "sparse" else super().most_nodes
