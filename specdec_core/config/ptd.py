"""Options of Progressive Tree Drafting: one profile, and every switch of it settable by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from specdec_core.config.base import DrafterOptions

_MOST_DRAFTING = 1024


@dataclass(frozen=True, slots=True)
class PtdSwitches:
    """What the paper, its release and we do differently; the values are our own defaults.

    Attributes:
        sub_trees: Most draft trees side by side; 0 for as many as the width.
        stagger: Whether each sub-tree hangs below the top of the one before it.
        merge: Whether drafts enter the pool before or after the forest is pruned. Before, tokens
            that no longer fit on a full node enter it too.
        pool_start: Whether the pool fills from the first step, or only in steps whose forest has
            reached its full depth.
        verified: Which pool trees learn the target's token after every verified candidate:
            none, that of the last token, or those of all its ancestors.
        confirm: Whether the output enters the pool, and counts how often its edges were right.
        prefill: Whether the prompt enters the pool in the same way.
        order: Which nodes of a pool tree are verified first: the oldest level by level, or the
            likeliest by their counts, the most recent of equals.
        context: Most tokens of the output's end that a continuation is looked up by; 1 is the
            last token alone.
        candidates: Most candidate nodes verified per step.
        cap: How pool trees above `key_nodes` lose their oldest branch: never, once per merge, or
            until they are within it; the last also bounds the pool by `pool_nodes`.
        eos: What happens to a drafted token that ends an output: it is expanded like any other,
            the branch that holds it is cut, or it is offered as a leaf but never expanded.
        fallback: What is verified where the pool knows nothing: nothing, or a prompt lookup.
    """

    sub_trees: int = 0
    stagger: bool = True
    merge: Literal["before", "after"] = "before"
    pool_start: Literal["first", "full"] = "first"
    verified: Literal["off", "key", "all"] = "all"
    confirm: bool = True
    prefill: bool = False
    order: Literal["insertion", "likely"] = "likely"
    context: int = 1
    candidates: int = 48
    cap: Literal["none", "once", "strict"] = "strict"
    eos: Literal["expand", "cut", "leaf"] = "leaf"
    fallback: Literal["none", "prompt-lookup"] = "prompt-lookup"


_RELEASE = PtdSwitches(
    pool_start="full",
    verified="key",
    confirm=False,
    order="insertion",
    candidates=64,
    cap="once",
    eos="cut",
    fallback="none",
)
_PROFILES = {
    "default": PtdSwitches(),
    "release": _RELEASE,
    "paper": replace(
        _RELEASE,
        sub_trees=1,
        stagger=False,
        merge="after",
        pool_start="first",
        verified="off",
        candidates=256,
        cap="none",
        eos="expand",
    ),
}


class Ptd(DrafterOptions):
    """A forest drafted inside the target, and a pool of trees (Progressive Tree Drafting).

    A switch that is not given is as the profile has it: ``default`` (ours), ``paper``, or
    ``release`` for the published code. The release's biased sampling is not offered: our
    verification is lossless under every profile.
    """

    method: Literal["ptd"] = "ptd"
    drafts_trees: ClassVar[bool] = True
    profile: Literal["default", "paper", "release"] = Field(
        "default", description="where switches that are not given come from"
    )
    width: int = Field(4, ge=1, le=16, description="most children w of a draft node")
    depth: int = Field(6, ge=1, le=16, description="most levels d of a draft tree")
    init: Literal["random", "ner"] = Field(
        "random",
        description="tokens the forest starts with: random ones of the prompt, or the names, "
        "numbers, identifiers and quotations it mentions most (needs the target's tokenizer)",
    )
    expansion: Literal["greedy", "top-k", "top-p"] = Field(
        "greedy",
        description="token each draft node gains per step: the likeliest, or one drawn by its "
        "probability among the likeliest",
    )
    expansion_k: int = Field(8, ge=1, le=64, description="tokens drawn among, with top-k and top-p")
    expansion_p: float = Field(
        0.1,
        gt=0,
        le=1,
        description="with top-p, probability that the tokens drawn among must reach together",
    )
    period: int = Field(1, ge=1, le=64, description="the forest rides along every m-th step")
    key_nodes: int = Field(60, ge=1, le=4096, description="nodes kept per pool tree, where capped")
    pool_nodes: int = Field(
        50_000, ge=1, description="nodes kept in the pool, under the cap 'strict'"
    )
    sub_trees: int | None = Field(None, ge=0, le=16, description="draft trees; 0 for the width")
    stagger: bool | None = Field(None, description="whether sub-trees hang below earlier tops")
    merge: Literal["before", "after"] | None = Field(
        None, description="whether drafts enter the pool before or after pruning"
    )
    pool_start: Literal["first", "full"] | None = Field(
        None, description="whether the pool fills from the first step or from full depth on"
    )
    verified: Literal["off", "key", "all"] | None = Field(
        None, description="pool trees that learn the target's token after every candidate"
    )
    confirm: bool | None = Field(None, description="whether the output enters the pool")
    prefill: bool | None = Field(None, description="whether the prompt enters the pool")
    order: Literal["insertion", "likely"] | None = Field(
        None, description="candidates verified first: the oldest, or the likeliest"
    )
    context: int | None = Field(
        None, ge=1, le=16, description="longest end of the output that is looked up, tokens"
    )
    candidates: int | None = Field(None, ge=1, le=1024, description="most candidates verified K")
    cap: Literal["none", "once", "strict"] | None = Field(
        None, description="how pool trees above their bound lose their oldest branch"
    )
    eos: Literal["expand", "cut", "leaf"] | None = Field(
        None, description="what happens to drafted tokens that end an output"
    )
    fallback: Literal["none", "prompt-lookup"] | None = Field(
        None, description="what is verified where the pool knows nothing"
    )
    state_scope: Literal["prompt"] = Field("prompt", description="what is remembered")

    @property
    def switches(self) -> PtdSwitches:
        """The profile's switches, with those given by themselves in their place."""
        base = _PROFILES[self.profile]
        given = {
            name: value for name in base.__slots__ if (value := getattr(self, name)) is not None
        }
        return replace(base, **given)

    @property
    def num_trees(self) -> int:
        """Most draft trees side by side."""
        return self.switches.sub_trees or self.width

    @property
    def tree_bound(self) -> int:
        """Most nodes of a draft tree between steps."""
        return growing_tree_size(self.width, self.depth - 1)

    @model_validator(mode="after")
    def _check_size(self) -> Ptd:
        drafting = self.num_trees * self.tree_bound
        if drafting > _MOST_DRAFTING:
            raise ValueError(
                f"width {self.width} and depth {self.depth} draft up to {drafting} tokens per "
                f"step in {self.num_trees} trees: at most {_MOST_DRAFTING}, lower one of them"
            )
        return self


def growing_tree_size(width: int, num_steps: int) -> int:
    """Return the nodes of a tree that began as one and whose every node grew a child per step.

    A node of age a has children of the ages a - 1, a - 2, .., at most `width` of them.
    """
    sizes = [1]
    for age in range(1, num_steps + 1):
        sizes.append(1 + sum(sizes[max(0, age - width) :]))
    return sizes[num_steps]
