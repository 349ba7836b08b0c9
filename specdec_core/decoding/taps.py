"""Hidden states of the target on their way to the drafters that want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, cast

import torch

from specdec_core.decoding.drafter import Drafter
from specdec_core.decoding.target import CacheT, PrefixT, TappedView, TargetView
from specdec_core.errors import ConfigError
from specdec_core.tree.token_tree import TokenTree


class TapReader(Generic[CacheT, PrefixT]):
    """Runs a view and reads, from its last pass, the hidden states that drafters want.

    Where none wants any the view runs as if there were no such thing.
    """

    def __init__(self, view: TargetView[CacheT, PrefixT], drafters: Sequence[Drafter]) -> None:
        """Find the taps of all drafters.

        Raises:
            ConfigError: if the view lacks one, or shows no hidden states at all.
        """
        self._view = view
        self._taps = tuple(dict.fromkeys(tap for one in drafters for tap in one.needs.taps))
        self._hidden: Sequence[torch.Tensor] | torch.Tensor = ()
        if not self._taps:
            return
        if not isinstance(view, TappedView):
            raise ConfigError(
                f"a drafter wants hidden states {list(self._taps)}, but {type(view).__name__} "
                "shows none: decode with a view of a loaded model, or choose another drafter"
            )
        view.check_taps(self._taps)

    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: CacheT, prefix: PrefixT | None
    ) -> torch.Tensor:
        """Do as the view's `prefill`."""
        if not self._taps:
            return self._view.prefill(prompts, cache, prefix)
        logits, self._hidden = self._tapped.prefill_tapped(prompts, cache, self._taps, prefix)
        return logits

    def forward(self, trees: Sequence[TokenTree], cache: CacheT) -> torch.Tensor:
        """Do as the view's `forward`."""
        if not self._taps:
            return self._view.forward(trees, cache)
        logits, self._hidden = self._tapped.forward_tapped(trees, cache, self._taps)
        return logits

    def read(
        self, row: int, taps: Sequence[int], nodes: Sequence[int] | None = None
    ) -> torch.Tensor | None:
        """Return a copy of hidden states of the last pass, ``[n, T * hidden]``.

        Args:
            row: Sequence of the batch.
            taps: Which, in the order wanted; None is returned for none.
            nodes: Nodes of its tree; None for all tokens of its prompt.
        """
        if not taps:
            return None
        places = [self._taps.index(tap) for tap in taps]
        hidden = self._hidden[row] if nodes is None else self._hidden[row][list(nodes)]
        return hidden[:, places].flatten(1)

    @property
    def _tapped(self) -> TappedView[CacheT, PrefixT]:
        return cast(TappedView[CacheT, PrefixT], self._view)
