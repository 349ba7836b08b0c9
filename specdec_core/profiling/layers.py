"""What each half of each layer does to the residual stream on calibration prompts."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError
from specdec_core.models.target import Target
from specdec_core.skip import SkipUnit


class LayerStatistics(Record):
    """How much one half of one layer changes the residual stream, mean over prompt tokens."""

    unit: str = Field(description="canonical unit text, such as a12 or m7")
    relative_norm: float = Field(description="norm of the half's output over norm of its input")
    cosine: float = Field(description="cosine similarity of the stream before and after the half")


def layer_statistics(target: Target, prompts: Sequence[Sequence[int]]) -> list[LayerStatistics]:
    """Return statistics of every half, in layer order, attention before MLP.

    A half whose output is small beside its input is a candidate for skipping; the search
    decides, these numbers only explain.

    Args:
        target: The dense target.
        prompts: Token ids, at least one token each.

    Raises:
        ConfigError: if there are no prompts.

    Source: one minus the cosine is the block influence of Men et al. 2024 (ShortGPT), per half.
    """
    if not prompts or not all(prompts):
        raise ConfigError("layer statistics need at least one prompt, none of them empty")
    sums: dict[SkipUnit, tuple[float, float]] = {}

    def add(unit: SkipUnit, before: Tensor, delta: Tensor) -> None:
        ratio, cosine = _compare(before, delta)
        old_ratio, old_cosine = sums.get(unit, (0.0, 0.0))
        sums[unit] = old_ratio + ratio, old_cosine + cosine

    view = target.view()
    for prompt in prompts:
        view.watch_prompt(prompt, add)
    num_tokens = sum(len(prompt) for prompt in prompts)
    return [
        LayerStatistics(unit=str(u), relative_norm=ratio / num_tokens, cosine=cosine / num_tokens)
        for u, (ratio, cosine) in sums.items()
    ]


def _compare(before: Tensor, delta: Tensor) -> tuple[float, float]:
    """Return sums over tokens of the relative norm and of the cosine before/after."""
    x, change = before.float(), delta.float()
    ratio = change.norm(dim=-1) / x.norm(dim=-1)
    return float(ratio.sum()), float(functional.cosine_similarity(x, x + change, dim=-1).sum())
