"""Testing drafted tokens one after the other: chances and what is left, apart from the draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from specdec_core.decoding.sampling import draw_token
from specdec_core.errors import ConfigError
from specdec_core.randomness import Noise

MIN_MASS = 1e-12
"""Mass below which what is left of a distribution is rounding error."""


@dataclass(frozen=True, slots=True)
class Round:
    """One test of one drafted token.

    Attributes:
        token: The drafted token.
        chance: Probability to accept it, given that all earlier ones were rejected; above 1 is
            certain.
        rest: [V] what the target has left if it is rejected, of any sum; valid until the next
            round is asked for.
    """

    token: int
    chance: float
    rest: torch.Tensor  # [V]


def draw_by_rounds(
    target: torch.Tensor, rounds: Iterable[Round], noise: Noise, position: int
) -> int:
    """Return the first accepted token, or a draw from what is left.

    Args:
        target: [V] the target's probabilities, drawn from where there is no round.
        rounds: Asked for one by one, until a token is accepted.
        noise: The request's random numbers.
        position: Place of the token in the sequence.
    """
    rest = target
    for index, one in enumerate(rounds):
        if noise.uniform("accept", position, index) < one.chance:
            return one.token
        rest = one.rest
    return draw_token(rest.log(), noise, "rest", position)


def chosen_rounds(target: torch.Tensor, tokens: Iterable[int]) -> Iterator[Round]:
    """Yield the rounds of distinct tokens that were chosen, not drawn.

    A token is accepted with its share of the mass that no earlier one took; rejected, it loses
    its probability, and the rest counts over the whole vocabulary, not over the tokens tested.
    Together this is one draw from the target by breaking a stick, whatever the order. Where
    tokens hold all mass and rounding rejected them, the likeliest takes it.

    Args:
        target: [V] probabilities, float64; not changed.
        tokens: In any fixed order.

    Source: PTD, algorithm 2, with the normalisation and the final draw of its appendix and one
    pass over the children, as the loop printed there does not end.
    """
    rest, mass, tested = target.clone(), 1.0, []
    for token in tokens:
        tested.append(token)
        chance = float(rest[token])
        is_last = mass < MIN_MASS
        share = 0.0 if is_last else chance / mass
        mass -= chance
        rest[token] = 0
        if mass < MIN_MASS:
            best = max(tested, key=lambda one: float(target[one]))
            rest.zero_()[best] = 1
        yield Round(token, share, rest)


def drawn_rounds(
    target: torch.Tensor,
    distribution: torch.Tensor,
    tokens: Iterable[int],
    *,
    with_replacement: bool,
) -> Iterator[Round]:
    """Yield the rounds of tokens in the order they were drawn from a distribution.

    A token is accepted with min(1, p/q); rejected, what the target has above the draft is left,
    and without replacement the token then leaves the draft's distribution. Where nothing but
    rounding is left, no further token is tested and the last distribution that was more stays.

    Args:
        target: [V] probabilities p, float64; not changed.
        distribution: [V'] probabilities q of the first draw, any sum; ids it lacks have 0.
        tokens: Every draw, with multiplicity.
        with_replacement: Whether all were drawn from `distribution`.

    Raises:
        ConfigError: if a token cannot come from the distribution.

    Source: Leviathan et al. 2023 and Chen et al. 2023 for one draw; SpecInfer, multi-step
    speculative sampling, for several.
    """
    rest, draft = target, _normalised(distribution, target)
    for token in tokens:
        density = float(draft[token])
        if not density > 0:
            raise ConfigError(
                f"token {token} was said to be drawn from a distribution that gives it {density}: "
                "propose with exactly the distribution that was drawn from"
            )
        chance = float(rest[token]) / density
        above = (rest - draft).clamp(min=0)
        mass = float(above.sum())
        is_rounding = mass < MIN_MASS
        rest = rest if is_rounding else above / mass
        yield Round(token, chance, rest)
        if not with_replacement:
            draft = draft.index_fill(0, torch.tensor([token], device=draft.device), 0)
        left = float(draft.sum())
        if is_rounding or left < MIN_MASS:
            return
        draft = draft / left


def _normalised(distribution: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return a draft's distribution over the target's ids, in the target's type and place."""
    known = distribution[: len(target)].to(target)
    known = torch.nn.functional.pad(known, (0, len(target) - len(known)))
    return known / known.sum()
