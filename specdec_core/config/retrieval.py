"""Options of the drafters that retrieve: from the sequence itself, or from a datastore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from specdec_core.config.base import DrafterOptions


def _absolute(path: str) -> str:
    """The same place for every process, whatever folder it runs in."""
    return os.path.normpath(Path(path).expanduser().absolute()) if path else ""


FolderText = Annotated[str, AfterValidator(_absolute)]


class SuffixAutomaton(DrafterOptions):
    """Continue the longest earlier match of the context, in it or a datastore (SAM-Decoding).

    With ``fallback=token-recycling`` this is the SAMD of the papers that compare with it; with
    ``fallback=none`` every match is used, and short ones are drafted from carefully.
    """

    method: Literal["suffix-automaton"] = "suffix-automaton"
    places: ClassVar[frozenset[str]] = frozenset({"datastore"})
    drafts_trees: ClassVar[bool] = True
    num_tokens: int = Field(
        39,
        ge=1,
        le=128,
        description="longest continuation drafted, tokens; the paper's 40 count the root",
    )
    len_threshold: int | None = Field(
        None,
        ge=1,
        le=64,
        description="shortest match drafted from, tokens, that of a datastore after len_bias; "
        "default 5 with a fallback, 1 without",
    )
    len_bias: int = Field(
        5, ge=0, le=64, description="tokens that a match in the datastore must be longer"
    )
    alpha: float | None = Field(
        None,
        gt=0,
        le=128,
        description="tokens drafted per matched token; default no limit with a fallback, 4 without",
    )
    is_refined: bool = Field(
        False,
        description="whether a match with less than num_tokens after it gives way to a shorter "
        "one that has them",
    )
    datastore: FolderText = Field("", description="folder of a datastore to match too; '' for none")
    static_width: int | None = Field(
        None,
        ge=1,
        le=64,
        description="most nodes per depth drafted from the datastore; default 1 with a fallback, "
        "8 without",
    )
    fallback: Literal["token-recycling", "none"] = Field(
        "token-recycling", description="what drafts where no match is long enough"
    )
    fallback_nodes: int = Field(80, ge=1, le=1024, description="draft nodes of the fallback's tree")
    fallback_depth: int = Field(6, ge=1, le=64, description="longest path of that tree, tokens")
    update: Literal["all", "path"] = Field(
        "all", description="rows the fallback learns per step; see token-recycling"
    )
    prompt_bigrams: bool = Field(
        False, description="whether the fallback learns from the prompt; see token-recycling"
    )
    state_scope: Literal["prompt", "run"] = Field(
        "prompt", description="what the fallback remembers; matches never leave the request"
    )

    @model_validator(mode="after")
    def _check_use(self) -> SuffixAutomaton:
        owners = {
            "fallback": (
                "fallback_nodes",
                "fallback_depth",
                "update",
                "prompt_bigrams",
                "state_scope",
            ),
            "datastore": ("len_bias", "static_width"),
        }
        for owner, names in owners.items():
            fields = type(self).model_fields
            idle = [name for name in names if getattr(self, name) != fields[name].default]
            if idle and getattr(self, owner) in ("", "none"):
                raise ValueError(f"{', '.join(idle)} has no effect without a {owner}: leave it out")
        return self

    @property
    def is_replayable(self) -> bool:
        """Where the fallback, if any, learns from the accepted path alone."""
        return self.fallback == "none" or self.update == "path"

    @property
    def max_path(self) -> int:
        """Tokens of the longest continuation, or levels of the fallback's tree."""
        fallback = 0 if self.fallback == "none" else self.fallback_depth
        return max(self.num_tokens, fallback)


class BackoffTree(DrafterOptions):
    """Likeliest paths of a back-off model over the context's n-grams and the target's rankings."""

    method: Literal["backoff-tree"] = "backoff-tree"
    drafts_trees: ClassVar[bool] = True
    num_nodes: int = Field(15, ge=1, le=1024, description="most draft nodes of the tree")
    num_free: int = Field(
        3,
        ge=0,
        le=1024,
        description="nodes drafted whatever their chance: as many as verify for nearly nothing",
    )
    min_chance: float = Field(
        0.25, ge=0.0, le=1.0, description="least chance of a node beyond those, along its path"
    )
    max_ngram: int = Field(6, ge=1, le=16, description="longest suffix looked up, tokens")
    max_followers: int = Field(4, ge=1, le=64, description="followers kept per n-gram")
    top_k: int = Field(8, ge=1, le=64, description="ranked ids kept per token")
    state_scope: Literal["prompt", "run"] = Field(
        "prompt",
        description="what is remembered of rankings and chances; n-grams never leave the request",
    )

    @property
    def is_replayable(self) -> bool:
        """Always: it learns from committed tokens and the rankings after them."""
        return True

    @property
    def max_path(self) -> int:
        """All nodes of the tree in one path."""
        return self.num_nodes


class Rest(DrafterOptions):
    """Tree of what follows the longest suffix of the context found in a datastore (REST)."""

    method: Literal["rest"] = "rest"
    places: ClassVar[frozenset[str]] = frozenset({"datastore"})
    drafts_trees: ClassVar[bool] = True
    datastore: FolderText = Field(
        min_length=1, description="folder that 'specdec datastore build' wrote"
    )
    max_suffix: int = Field(16, ge=1, le=64, description="longest suffix looked up, tokens")
    min_suffix: int = Field(2, ge=1, le=64, description="shortest suffix looked up, tokens")
    max_matches: int = Field(5000, ge=1, le=100_000, description="occurrences that count")
    num_tokens: int = Field(10, ge=1, le=64, description="longest continuation, tokens")
    num_nodes: int = Field(64, ge=1, le=1024, description="draft nodes of the tree")
    state_scope: Literal["prompt"] = Field("prompt", description="what is remembered")

    @model_validator(mode="after")
    def _check_suffixes(self) -> Rest:
        if self.min_suffix > self.max_suffix:
            raise ValueError(
                f"min_suffix {self.min_suffix} is above max_suffix {self.max_suffix}: lower it"
            )
        return self

    @property
    def is_replayable(self) -> bool:
        """Always: it looks at the sequence and a fixed datastore."""
        return True

    @property
    def max_path(self) -> int:
        """Tokens of the longest continuation."""
        return self.num_tokens
