"""Options of the methods that draft with a model, their own or a sparse view of the target."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator

from specdec_core.config.base import DrafterOptions
from specdec_core.config.tree_options import (
    Confidence,
    DraftChoice,
    Gamma,
    ModelReference,
    PromptScope,
    TreeOptions,
    split_list,
)
from specdec_core.skip import SkipConfig

Chance = Annotated[float, Field(ge=0.0, le=1.0)]


class DraftModel(DrafterOptions):
    """A chain written by a smaller model (Leviathan et al. 2023; Chen et al. 2023)."""

    method: Literal["draft-model"] = "draft-model"
    places: ClassVar[frozenset[str]] = frozenset({"model"})
    model: ModelReference
    gamma: Gamma = 7
    min_confidence: Confidence = 0.0
    draft: DraftChoice = "sample"
    state_scope: PromptScope = "prompt"

    @property
    def max_path(self) -> int:
        """Tokens of the longest chain."""
        return self.gamma

    @property
    def draws_candidates(self) -> bool:
        """Where they are drawn rather than chosen."""
        return self.draft == "sample"


class DraftTree(TreeOptions):
    """A tree written by a smaller model: top-k per depth, or expanded where it is likeliest.

    ``static`` gives every node of a depth equally many children; ``dynamic`` runs the `top_k`
    best nodes of each level and keeps the best of everything seen (EAGLE-2, sections 4.1 and 4.2,
    with a model of its own in place of a head on the target).
    """

    method: Literal["draft-tree"] = "draft-tree"
    shape: Literal["static", "dynamic"] = Field("static", description="where the tree grows")


class LayerSkip(DrafterOptions):
    """A chain written by the target itself without some of its layers (Draft & Verify).

    The prompt and every committed token are seen through the whole target's cache.
    """

    method: Literal["layer-skip"] = "layer-skip"
    skip: str = Field(description="units left out while drafting, such as 3,m7,a12")
    gamma: Gamma = 7
    min_confidence: Confidence = 0.0
    draft: DraftChoice = "sample"
    state_scope: PromptScope = "prompt"

    @field_validator("skip")
    @classmethod
    def _canonical(cls, text: str) -> str:
        skip = SkipConfig.parse(text)
        if not skip.units:
            raise ValueError(
                "nothing is left out, so that drafting costs what it saves: name units such as "
                "3,m7,a12"
            )
        return str(skip)

    @property
    def max_path(self) -> int:
        """Tokens of the longest chain."""
        return self.gamma

    @property
    def draws_candidates(self) -> bool:
        """Where they are drawn rather than chosen."""
        return self.draft == "sample"


class Synthetic(DrafterOptions):
    """A chain that is right by prescription: for testing statistics and cost, not a method.

    The target's own continuation is decoded ahead, then drafted with the chances asked for;
    verification is real, the output is the target's.
    """

    method: Literal["synthetic"] = "synthetic"
    acceptance: Annotated[tuple[Chance, ...], BeforeValidator(split_list)] = Field(
        (0.8, 0.7, 0.6, 0.5),
        min_length=1,
        max_length=64,
        description="chance that a draft token is right if those before it are, per position, "
        "such as 0.8/0.7/0.6",
    )
    horizon: int = Field(
        256,
        ge=0,
        le=4096,
        description="tokens decoded ahead, untimed; behind them drafting costs target forwards",
    )
    state_scope: PromptScope = "prompt"

    @property
    def is_synthetic(self) -> bool:
        """Always: its acceptance says nothing about any drafter."""
        return True

    @property
    def max_path(self) -> int:
        """Tokens of the chain."""
        return len(self.acceptance)
