"""How tokens are chosen from the target's logits, and which rule verifies drafts; torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError, model_validator

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError

Verification = Literal["auto", "match", "residual", "rejection", "typical"]


class Sampling(Record):
    """Everything that turns logits into tokens; the default is greedy decoding.

    Logits go through repetition penalty, presence penalty, temperature, top-k, top-p and min-p,
    in this order, for plain and speculative decoding alike.
    """

    temperature: float = Field(0.0, ge=0.0, le=100.0, description="0 takes the most likely token")
    top_k: int = Field(0, ge=0, description="tokens kept, most likely first; 0 keeps all")
    top_p: float = Field(
        1.0, gt=0.0, le=1.0, description="the smallest set of tokens with this mass is kept"
    )
    min_p: float = Field(
        0.0, ge=0.0, le=1.0, description="least probability kept, as a share of the largest"
    )
    repetition_penalty: float = Field(
        1.0, gt=0.0, le=10.0, description="weakens the logits of tokens in prompt or output"
    )
    presence_penalty: float = Field(
        0.0, ge=-10.0, le=10.0, description="taken off the logits of tokens in the output"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="of all random numbers")
    verification: Verification = Field(
        "auto",
        description="'match' draws from the target and follows the child with that token; "
        "'residual' tests children one by one; 'rejection' uses the distribution that drafts were "
        "drawn from; 'typical' accepts what is likely enough and is lossy; 'auto' is 'rejection' "
        "for drawn drafts and 'match' for all others",
    )
    epsilon: float = Field(
        0.09, gt=0.0, le=1.0, description="typical: probability that is always enough"
    )
    delta: float = Field(
        0.3, gt=0.0, le=1.0, description="typical: share of exp(-entropy) that is enough"
    )

    @model_validator(mode="after")
    def _refuse_what_would_be_ignored(self) -> Sampling:
        if self.is_greedy:
            self._refuse_changes(("top_k", "top_p", "min_p"), "they need a temperature above 0")
        if self.verification != "typical":
            self._refuse_changes(("epsilon", "delta"), "they need verification=typical")
        return self

    def _refuse_changes(self, names: tuple[str, ...], reason: str) -> None:
        fields = type(self).model_fields
        changed = [name for name in names if getattr(self, name) != fields[name].default]
        if changed:
            raise ValueError(f"{', '.join(changed)} would change nothing here: {reason}")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken, after penalties if there are any."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether logits depend on what was said before."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0

    @property
    def is_lossless(self) -> bool:
        """Whether outputs have the law of the target alone; greedily every rule is exact."""
        return self.is_greedy or self.verification != "typical"

    @property
    def is_coupled(self) -> bool:
        """Whether outputs are those of plain decoding token for token, for chosen candidates.

        Under 'auto' this does not hold for drafters that draw their candidates.
        """
        return self.is_greedy or self.verification in ("auto", "match")

    def is_coupled_for(self, *, draws_candidates: bool) -> bool:
        """Return whether outputs are those of plain decoding token for token.

        Args:
            draws_candidates: Whether the drafter draws its candidates where decoding samples;
                'auto' tests these by rejection.
        """
        is_rejected = not self.is_greedy and self.verification == "auto" and draws_candidates
        return self.is_coupled and not is_rejected

    @property
    def truncates(self) -> bool:
        """Whether the least likely tokens are left out, so that there is an edge of the kept."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


def parse_sampling(text: str) -> Sampling:
    """Return the sampling written as ``option=value,option=value``; empty means greedy.

    Raises:
        ConfigError: for an unknown option, or a value outside its range.
    """
    options: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name in options:
            raise ConfigError(
                f"sampling option {part!r} in {text!r} is not understood: write option=value once"
            )
        options[name] = value
    try:
        return Sampling.model_validate(options)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'options'}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors()
        )
        raise ConfigError(
            f"sampling {text!r} is not valid: {problems}; it takes: "
            f"{', '.join(Sampling.model_fields)}"
        ) from error


def format_sampling(sampling: Sampling) -> str:
    """Return the shortest text that `parse_sampling` reads back as `sampling`."""
    options = sampling.model_dump(exclude_defaults=True)
    return ",".join(f"{name}={value}" for name, value in options.items())
