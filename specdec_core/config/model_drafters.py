"""Options of the methods that draft with a model, their own or a sparse view of the target."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from specdec_core.config.base import DrafterOptions
from specdec_core.skip import SkipConfig

_STATIC_BRANCHING = (4, 3, 2, 1, 1, 1, 1)
_STATIC_NODES = 128
_DYNAMIC_TOP_K = 10
_DYNAMIC_DEPTH = 5
_DYNAMIC_NODES = 59


def _split(value: Any) -> Any:
    """Read a list from text, with slashes or commas."""
    return value.replace(",", "/").split("/") if isinstance(value, str) else value


ModelReference = Annotated[str, Field(min_length=1, description="reference of the draft model")]
Gamma = Annotated[int, Field(ge=1, le=64, description="longest chain, tokens")]
Confidence = Annotated[
    float,
    Field(
        ge=0.0,
        lt=1.0,
        description="a token less likely than this to the draft ends the chain; 0 never does",
    ),
]
DraftChoice = Annotated[
    Literal["greedy", "sample", "coupled"],
    Field(
        description="under sampling: 'greedy' takes the most likely tokens, 'sample' draws from "
        "the draft's distribution and is verified with it, 'coupled' draws with the noise the "
        "target will draw with; all the same where the target is greedy"
    ),
]
PromptScope = Annotated[Literal["prompt"], Field(description="what is remembered")]
Count = Annotated[int, Field(ge=1, le=64)]
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


class DraftTree(DrafterOptions):
    """A tree written by a smaller model: top-k per depth, or expanded where it is likeliest.

    ``static`` gives every node of a depth equally many children; ``dynamic`` runs the `top_k`
    best nodes of each level and keeps the best of everything seen (EAGLE-2, sections 4.1 and 4.2,
    with a model of its own in place of a head on the target).
    """

    method: Literal["draft-tree"] = "draft-tree"
    places: ClassVar[frozenset[str]] = frozenset({"model"})
    drafts_trees: ClassVar[bool] = True
    model: ModelReference
    shape: Literal["static", "dynamic"] = Field("static", description="where the tree grows")
    branching: Annotated[tuple[Count, ...] | None, BeforeValidator(_split)] = Field(
        None,
        min_length=1,
        max_length=64,
        description="static: children of a node per depth, such as 4/3/2/1/1/1/1, the default",
    )
    top_k: int | None = Field(
        None,
        ge=1,
        le=64,
        description="dynamic: children of a node, and nodes run per level; default 10",
    )
    depth: int | None = Field(
        None,
        ge=0,
        le=63,
        description="dynamic: levels run below the root; the longest path has one token more; "
        "default 5",
    )
    num_nodes: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="most draft nodes offered, the likeliest; default 128 if static, 59 if dynamic",
    )
    draft: DraftChoice = "greedy"
    state_scope: PromptScope = "prompt"

    @model_validator(mode="after")
    def _check_shape(self) -> DraftTree:
        foreign = ("top_k", "depth") if self.shape == "static" else ("branching",)
        idle = [name for name in foreign if getattr(self, name) is not None]
        if idle:
            raise ValueError(
                f"{', '.join(idle)} has no effect on shape={self.shape}: leave it out or choose "
                "the other shape"
            )
        if self.shape == "dynamic" and self.draft == "sample":
            raise ValueError(
                "a dynamic tree keeps drawn tokens by how likely they are, which no rule makes "
                "lossless: use draft=greedy or draft=coupled, or shape=static"
            )
        return self

    @property
    def draws_candidates(self) -> bool:
        """Where they are drawn rather than chosen."""
        return self.draft == "sample"

    @property
    def levels(self) -> tuple[int, ...]:
        """Children of a node per depth."""
        if self.shape == "static":
            return self.branching or _STATIC_BRANCHING
        depth = _DYNAMIC_DEPTH if self.depth is None else self.depth
        return (self.top_k or _DYNAMIC_TOP_K,) * (depth + 1)

    @property
    def max_path(self) -> int:
        """Levels of the tree."""
        return len(self.levels)

    @property
    def width(self) -> int | None:
        """Most nodes run per level, None for all."""
        return None if self.shape == "static" else self.top_k or _DYNAMIC_TOP_K

    @property
    def most_nodes(self) -> int:
        """Most draft nodes offered."""
        return self.num_nodes or (_STATIC_NODES if self.shape == "static" else _DYNAMIC_NODES)


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
    acceptance: Annotated[tuple[Chance, ...], BeforeValidator(_split)] = Field(
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
