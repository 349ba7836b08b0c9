"""What a draft is trained to minimise: a weighted sum of named losses, and its text form."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Literal, get_args

from pydantic import Field, model_validator

from specdec_core.config.base import FiniteRecord
from specdec_core.errors import ConfigError

LossName = Literal[
    "ce",
    "kl",
    "reverse-kl",
    "tv",
    "window-tv",
    "lk-alpha",
    "lk-lambda",
    "eal",
    "wtv",
    "grpo",
]
LOSSES: tuple[LossName, ...] = get_args(LossName)
# Names that papers give to sums whose weights they fix; with weights written out they are no names.
PRESETS = {"kl+eal": "kl+0.1eal", "kl+tv": "kl+0.1window-tv", "lk": "lk-lambda"}


def _parts(text: str) -> tuple[str, ...]:
    """Return the parts of a sum, the same for every order."""
    return tuple(sorted(text.split("+")))


_BY_PARTS = {_parts(name): sum_of for name, sum_of in PRESETS.items()}
PHASES = "/"
"""Joins the losses of two phases, as in ``wtv/wtv+0.1grpo``."""
_TERM = re.compile(r"(?P<weight>\d+(?:\.\d+)?|\.\d+)?\*?(?P<name>[a-z-]+)")


class LossTerm(FiniteRecord):
    """One loss and its weight."""

    name: LossName
    weight: float = Field(1.0, gt=0.0, le=1000.0, description="factor of the loss in the sum")


# Closer to 0 logits overflow when they are divided by it.
LEAST_TEMPERATURE = 1e-3


class LossOptions(FiniteRecord):
    """What losses share, whatever their sum.

    Source: EAL (arXiv 2609.24150): windows of 7 tokens. LK (hybrid) with eta 3; that each sequence
    has its own weight at each draft depth is ours. So are GRPO's group sizes and clips: the paper
    does not give them.
    """

    gamma: int = Field(
        7,
        ge=1,
        le=64,
        description="window of eal, wtv, window-tv, grpo and validation, tokens; that of medusa is "
        "at most its heads",
    )
    temperature: float = Field(
        1.0,
        ge=LEAST_TEMPERATURE,
        le=100.0,
        description="of both distributions in tv, window-tv, wtv and lk",
    )
    lk_eta: float = Field(3.0, gt=0.0, le=100.0, description="how fast lk-lambda turns to tv")
    lk_scope: Literal["depth", "position"] = Field(
        "depth",
        description="what has a weight of its own in lk-lambda: each sequence at a draft depth, or "
        "each position",
    )
    depth_decay: float = Field(
        1.0,
        gt=0.0,
        le=1.0,
        description="weight of a draft depth relative to the one before, in losses that are means "
        "over positions; windows weigh depths by themselves",
    )
    grpo_groups: int = Field(4, ge=1, le=64, description="groups of windows per response")
    grpo_windows: int = Field(8, ge=2, le=256, description="windows per group, stride 1")
    grpo_clip_advantage: float = Field(
        3.0, gt=0.0, le=100.0, description="largest advantage, standard deviations of its group"
    )
    grpo_clip_ratio: float = Field(
        0.2, gt=0.0, lt=1.0, description="how far the ratio to the reference counts from 1"
    )


_BY_DEPTH: frozenset[LossName] = frozenset(
    {"ce", "kl", "reverse-kl", "tv", "lk-alpha", "lk-lambda"}
)
READERS: Mapping[str, frozenset[LossName]] = MappingProxyType(
    {
        "lk_eta": frozenset({"lk-lambda"}),
        "lk_scope": frozenset({"lk-lambda"}),
        "depth_decay": _BY_DEPTH,
        "grpo_groups": frozenset({"grpo"}),
        "grpo_windows": frozenset({"grpo"}),
        "grpo_clip_advantage": frozenset({"grpo"}),
        "grpo_clip_ratio": frozenset({"grpo"}),
    }
)
"""Options that only some losses read; validation reads the others, whatever the loss."""


def unread_options(options: LossOptions, names: Collection[LossName]) -> tuple[str, ...]:
    """Return the options that are not as by default though none of these losses reads them."""
    return tuple(
        option
        for option, readers in READERS.items()
        if readers.isdisjoint(names)
        and getattr(options, option) != LossOptions.model_fields[option].default
    )


class LossConfig(LossOptions):
    """A weighted sum of losses and what they share.

    Source: EAL (arXiv 2609.24150): weights of 0.1 beside an anchor.
    """

    terms: tuple[LossTerm, ...] = Field(
        (LossTerm(name="kl"),), min_length=1, description="losses that are added up"
    )

    @model_validator(mode="after")
    def _names_once(self) -> LossConfig:
        names = [term.name for term in self.terms]
        if len(set(names)) < len(names):
            raise ValueError(f"a loss is named twice in {format_loss(self.terms)}: add its weights")
        return self

    @property
    def names(self) -> frozenset[LossName]:
        """Losses that are added up."""
        return frozenset(term.name for term in self.terms)

    @property
    def group_span(self) -> int:
        """Positions that the windows of one group of grpo cover."""
        return self.grpo_windows + self.gamma - 1


def parse_loss(text: str) -> tuple[LossTerm, ...]:
    """Return the terms written as ``kl+0.1eal``, ``wtv`` or a name of `PRESETS` such as ``kl+tv``.

    They are in the order of `LOSSES`, whatever that of the text: a sum is one loss.

    Raises:
        ConfigError: for an unknown loss, one named twice, or a weight outside (0, 1000].
    """
    compact = text.replace(" ", "")
    terms: list[LossTerm] = []
    for part in _BY_PARTS.get(_parts(compact), compact).split("+"):
        match = _TERM.fullmatch(part)
        name = PRESETS.get(match["name"], match["name"]) if match else ""
        if match is None or name not in LOSSES:
            raise ConfigError(
                f"loss {part!r} in {text!r} is unknown: add losses out of {', '.join(LOSSES)}, "
                f"such as kl+0.1eal, or name one of {', '.join(PRESETS)}"
            )
        weight = float(match["weight"] or 1.0)
        if not 0.0 < weight <= 1000.0:
            raise ConfigError(
                f"loss {part!r} in {text!r} has weight {weight:g}: give one above 0 and at most "
                "1000, or leave the loss out"
            )
        if any(term.name == name for term in terms):
            raise ConfigError(f"loss {name!r} is named twice in {text!r}: add its weights")
        terms.append(LossTerm.model_validate({"name": name, "weight": weight}))
    return _ordered(terms)


def format_loss(terms: tuple[LossTerm, ...]) -> str:
    """Return a short text that `parse_loss` reads back, the same for every order of the terms."""
    terms = _ordered(terms)
    text = "+".join(f"{_factor(t.weight)}{t.name}" if t.weight != 1.0 else t.name for t in terms)
    if _parts(text) in _BY_PARTS:  # all weights are 1, which the name of the preset does not mean
        return "+".join(f"1{term.name}" for term in terms)
    return text


def _ordered(terms: Iterable[LossTerm]) -> tuple[LossTerm, ...]:
    return tuple(sorted(terms, key=lambda term: LOSSES.index(term.name)))


def split_losses(text: str) -> tuple[str, str | None]:
    """Return the losses of both phases; None where there is one phase.

    Raises:
        ConfigError: for an unknown loss, or more than two phases.
    """
    first, joined, second = text.partition(PHASES)
    if PHASES in second or not first or (joined and not second):
        raise ConfigError(f"losses {text!r} are not one or two phases: write wtv/wtv+0.1grpo")
    return format_loss(parse_loss(first)), format_loss(parse_loss(second)) if joined else None


def join_losses(first: str, second: str | None) -> str:
    """Return the text that `split_losses` reads back."""
    return first if second is None else f"{first}{PHASES}{second}"


def canonical_losses(text: str) -> str:
    """Return the losses of one or two phases as they are stored.

    Raises:
        ConfigError: as `split_losses`.
    """
    return join_losses(*split_losses(text))


def loss_names(text: str) -> frozenset[LossName]:
    """Return the losses that are added up in any phase.

    Raises:
        ConfigError: as `split_losses`.
    """
    phases = filter(None, split_losses(text))
    return frozenset(term.name for phase in phases for term in parse_loss(phase))


def _factor(weight: float) -> str:
    return f"{Decimal(repr(weight)):f}".removesuffix(".0")
