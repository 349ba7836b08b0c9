"""Drafter options: one record per method, told apart by `method`, and their text form."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError

from specdec_core.config.base import DrafterOptions
from specdec_core.config.learned_drafters import Eagle, Medusa
from specdec_core.config.model_drafters import DraftModel, DraftTree, LayerSkip, Synthetic
from specdec_core.config.ptd import Ptd
from specdec_core.config.retrieval import BackoffTree, Rest, SuffixAutomaton
from specdec_core.config.window_drafters import Lookahead, SelfDraft
from specdec_core.errors import ConfigError


class NoDrafter(DrafterOptions):
    """Autoregressive decoding: nothing is ever proposed."""

    method: Literal["none"] = "none"

    @property
    def is_replayable(self) -> bool:
        """Always: there is nothing to repeat."""
        return True

    @property
    def max_path(self) -> int:
        """Nothing is drafted."""
        return 0


class PromptLookup(DrafterOptions):
    """Continue the most recent earlier occurrence of the last n-gram (prompt lookup decoding)."""

    method: Literal["prompt-lookup"] = "prompt-lookup"
    max_ngram: int = Field(3, ge=1, le=16, description="longest suffix looked up, tokens")
    num_tokens: int = Field(10, ge=1, le=128, description="longest continuation drafted, tokens")
    state_scope: Literal["prompt"] = Field("prompt", description="what the drafter remembers")

    @property
    def is_replayable(self) -> bool:
        """Always: it looks at the sequence alone."""
        return True

    @property
    def max_path(self) -> int:
        """Tokens of the longest continuation."""
        return self.num_tokens


class TokenRecycling(DrafterOptions):
    """Tree of each token's last seen top-k successors (Token Recycling)."""

    method: Literal["token-recycling"] = "token-recycling"
    drafts_trees: ClassVar[bool] = True
    top_k: int = Field(8, ge=1, le=64, description="successors kept per token")
    num_nodes: int = Field(
        80, ge=1, le=1024, description="draft nodes of the tree; 80 is the paper's template"
    )
    max_depth: int = Field(6, ge=1, le=64, description="longest drafted path, tokens")
    update: Literal["all", "path"] = Field(
        "all",
        description="rows learned per step: every node (the paper) or only the accepted path; "
        "'path' depends on the committed tokens alone and can be replayed without a model",
    )
    prompt_bigrams: bool = Field(
        False,
        description="whether what follows a token in the prompt counts as its first successors "
        "until a ranking replaces them; the paper learns nothing from prompts",
    )
    state_scope: Literal["prompt", "run"] = Field("prompt", description="what is remembered")

    @property
    def is_replayable(self) -> bool:
        """Where it learns from the accepted path alone."""
        return self.update == "path"

    @property
    def max_path(self) -> int:
        """Levels of the tree."""
        return self.max_depth


DrafterConfig = Annotated[
    NoDrafter
    | PromptLookup
    | TokenRecycling
    | BackoffTree
    | Lookahead
    | SelfDraft
    | Ptd
    | SuffixAutomaton
    | Rest
    | DraftModel
    | DraftTree
    | Eagle
    | Medusa
    | LayerSkip
    | Synthetic,
    Field(discriminator="method"),
]
_LIST_ITEM = re.compile(r"[am]?\d+(\.\d+)?")
_ADAPTER: TypeAdapter[DrafterConfig] = TypeAdapter(DrafterConfig)
METHODS: dict[str, type[DrafterOptions]] = {
    "none": NoDrafter,
    "prompt-lookup": PromptLookup,
    "token-recycling": TokenRecycling,
    "backoff-tree": BackoffTree,
    "lookahead": Lookahead,
    "self-draft": SelfDraft,
    "ptd": Ptd,
    "suffix-automaton": SuffixAutomaton,
    "rest": Rest,
    "draft-model": DraftModel,
    "draft-tree": DraftTree,
    "eagle": Eagle,
    "medusa": Medusa,
    "layer-skip": LayerSkip,
    "synthetic": Synthetic,
}


def parse_drafter(text: str) -> DrafterConfig:
    """Return the drafter written as ``method`` or ``method:option=value,option=value``.

    Raises:
        ConfigError: for an unknown method or option, or a value outside its range.
    """
    method, _, rest = text.strip().partition(":")
    if method not in METHODS:
        raise ConfigError(f"drafter {method!r} is unknown: choose one of {', '.join(METHODS)}")
    options: dict[str, str] = {}
    name = ""
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        before = name
        name, equals, value = part.partition("=")
        if before in options and _LIST_ITEM.fullmatch(part):  # the list before it goes on
            name, equals, value = before, "=", f"{options.pop(before)},{part}"
        if not equals or name in options:
            raise ConfigError(
                f"drafter option {part!r} in {text!r} is not understood: write option=value once"
            )
        options[name] = value
    try:
        return _ADAPTER.validate_python({"method": method, **options})
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in e['loc'][1:]) or method}: {e['msg']}"
            for e in error.errors()
        )
        known = ", ".join(name for name in METHODS[method].model_fields if name != "method")
        raise ConfigError(
            f"drafter {text!r} is not valid: {problems}; {method} takes: {known or 'no options'}"
        ) from error


def format_drafter(config: DrafterConfig) -> str:
    """Return the shortest text that `parse_drafter` reads back as `config`."""
    options = config.model_dump(exclude_defaults=True, exclude={"method"})
    rest = ",".join(f"{name}={_text(value)}" for name, value in options.items())
    return f"{config.method}:{rest}" if rest else config.method


def _text(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
