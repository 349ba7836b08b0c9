"""A prompt prefix that many prompts share, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from specdec_core.errors import ConfigError
from specdec_core.skip import SkipConfig


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """What one view computed for a prompt prefix.

    Attributes:
        tokens: The prefix.
        rows: Its cache rows, ``[2, slots, 1, H_kv, P, d]``.
        skip: What the view skips.
        taps: Which hidden states were kept.
        hidden: These, ``[P, T, hidden]``; None where none were.
    """

    tokens: tuple[int, ...]
    rows: Tensor
    skip: SkipConfig
    taps: tuple[int, ...] = ()
    hidden: Tensor | None = None

    def cut(self, prompt: Sequence[int], skip: SkipConfig) -> list[int]:
        """Return `prompt` without the prefix, for a view that skips `skip`.

        Raises:
            ConfigError: if the prefix is another view's, or the prompt does not go on behind it.
        """
        if self.skip != skip:
            raise ConfigError(
                f"prefix of view {self.skip.label} used in view {skip.label}: build one per view"
            )
        length = len(self.tokens)
        if tuple(prompt[:length]) != self.tokens or len(prompt) == length:
            raise ConfigError(
                f"prompt of {len(prompt)} tokens does not continue the shared prefix of {length} "
                "tokens"
            )
        return list(prompt[length:])

    def hidden_at(self, taps: Sequence[int]) -> Tensor:
        """Return its hidden states ``[P, T, hidden]`` in the order of `taps`, at least one.

        Raises:
            ConfigError: if one was not kept.
        """
        absent = [tap for tap in taps if tap not in self.taps]
        if absent or self.hidden is None:
            raise ConfigError(
                f"hidden states {absent} are wanted of a shared prefix that kept "
                f"{list(self.taps)}: build the prefix with taps={tuple(taps)}"
            )
        return self.hidden[:, [self.taps.index(tap) for tap in taps]]
