"""Options that drafters with weights of their own share: how tokens are chosen, shapes of trees."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from specdec_core.config.base import DrafterOptions

_STATIC_BRANCHING = (4, 3, 2, 1, 1, 1, 1)
_STATIC_NODES = 128
_DYNAMIC_TOP_K = 10
_DYNAMIC_DEPTH = 5
_DYNAMIC_NODES = 59


def split_list(value: Any) -> Any:
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


class TreeOptions(DrafterOptions):
    """A tree written with something learned; subclasses say what and which shapes there are."""

    places: ClassVar[frozenset[str]] = frozenset({"model"})
    drafts_trees: ClassVar[bool] = True
    own_options: ClassVar[dict[str, tuple[str, ...]]] = {
        "static": ("branching", "num_nodes"),
        "dynamic": ("top_k", "depth", "num_nodes"),
    }
    """The options that have an effect on each shape alone."""

    model: ModelReference
    shape: str = Field("static", description="where the tree grows")
    branching: Annotated[tuple[Count, ...] | None, BeforeValidator(split_list)] = Field(
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
    def _check_shape(self) -> TreeOptions:
        effective = self.own_options[self.shape]
        known = {name for names in self.own_options.values() for name in names}
        idle = [
            name
            for name in type(self).model_fields
            if name in known and name not in effective and getattr(self, name) is not None
        ]
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
        return self.top_k or _DYNAMIC_TOP_K if self.shape == "dynamic" else None

    @property
    def most_nodes(self) -> int:
        """Most draft nodes offered."""
        return self.num_nodes or (_STATIC_NODES if self.shape == "static" else _DYNAMIC_NODES)
