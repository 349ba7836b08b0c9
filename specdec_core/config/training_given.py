"""What is refused of the parameters of a training because it would have no effect."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from specdec_core.config.losses import PHASES, READERS, loss_names, unread_options
from specdec_core.config.training import TrainConfig, format_draft, num_depths
from specdec_core.errors import ConfigError

if TYPE_CHECKING:
    from specdec_core.config.training_run import TrainingRunConfig

_SEVERAL: Mapping[str, str] = MappingProxyType(
    {
        "loss": "losses",
        "second_loss": "losses",
        "seed": "seeds",
        "learning_rate": "learning_rates",
    }
)
"""Parameters of one training, and what takes their place in a comparison."""


def check_taken_over(
    chosen: Mapping[str, Any], values: Mapping[str, Any], preset: str | None
) -> None:
    """Check that nothing is given whose place another parameter takes.

    Args:
        chosen: Parameters that were given.
        values: Those, and what the preset sets.
        preset: Its name.

    Raises:
        ConfigError: for the first one.
    """
    for one, several in _SEVERAL.items():
        if one in chosen and several in values:
            hint = ", phases are joined by /" if several == "losses" else ""
            found = (
                f"{one} and {several} are both given"
                if several in chosen
                else f"{one} is given, but preset {preset} names {several}, which alone count"
            )
            raise ConfigError(f"{found}: give one of them, {several} in a comparison{hint}")
    unused = sorted(name for name in chosen.keys() - {"sweep_trials"} if name.startswith("sweep_"))
    if unused and not chosen.get("sweep_trials"):
        raise ConfigError(
            f"{', '.join(unused)} given without sweep_trials, so that nothing would be sought: "
            "give the number of sweep_trials, or leave the others out"
        )


def check_given(chosen: Collection[str], run: TrainingRunConfig, losses: tuple[str, ...]) -> None:
    """Check that what is asked of losses, phases and windows has an effect.

    Args:
        chosen: Names of the parameters that were given.
        run: What they make.
        losses: All that are trained.

    Raises:
        ConfigError: for an option that nothing reads, or windows that no proposal fills.
    """
    train = run.train
    for name in unread_options(train, frozenset().union(*map(loss_names, losses))):
        raise ConfigError(
            f"{name} {getattr(train, name)} is read by {', '.join(sorted(READERS[name]))} alone, "
            f"not by {', '.join(losses)}: leave it out, or name such a loss"
        )
    if train.depth_decay != 1.0 and num_depths(train.draft) == 1:
        raise ConfigError(
            f"depth_decay {train.depth_decay} weighs draft depths, but a draft "
            f"{format_draft(train.draft)!r} is trained at one: leave it out, or train medusa or "
            "eagle:version=3"
        )
    if "second_epochs" in chosen and not any(PHASES in loss for loss in losses):
        raise ConfigError(
            f"second_epochs {train.second_epochs} is given, but {', '.join(losses)} has no second "
            "phase: leave it out, or give a second_loss"
        )
    if "gamma" in chosen:
        _check_window(train)


def _check_window(train: TrainConfig) -> None:
    if train.window < train.gamma:
        raise ConfigError(
            f"gamma {train.gamma} is given, but a draft {format_draft(train.draft)!r} proposes one "
            f"token per head, at most {train.window}: leave gamma out, lower it, or raise num_heads"
        )
