"""What the decode loop asks of a target: two protocols, met by real models and scripted ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, runtime_checkable

import torch

from specdec_core.tree.token_tree import TokenTree

CacheT = TypeVar("CacheT", bound="Cache")
PrefixT = TypeVar("PrefixT", contravariant=True)


class Cache(Protocol):
    """Key-value rows of one batch; belongs to one generation.

    After a forward the rows of the tree nodes are pending until `commit`. Between steps row i of
    a sequence belongs to its token i, and the last committed token has no row yet: the length is
    ``len(sequence) - 1``.
    """

    @property
    def lengths(self) -> list[int]:
        """Committed rows of every sequence still in the batch."""
        ...

    def commit(self, paths: Sequence[Sequence[int]]) -> None:
        """Keep the pending rows of these nodes per sequence, in order, and drop the others.

        Args:
            paths: Strictly increasing node indices per sequence, each starting with 0.
        """
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only these sequences of the batch, none twice, in the given order."""
        ...

    def narrow(self, start: int, stop: int) -> Cache:
        """Return a cache over sequences ``start..stop-1`` that shares their storage."""
        ...


class TargetView(Protocol[CacheT, PrefixT]):
    """One (sparse) path through a loaded target."""

    @property
    def vocab_size(self) -> int:
        """Number of logits per row, V."""
        ...

    @property
    def max_positions(self) -> int:
        """Longest sequence, prompt and output together, tokens."""
        ...

    def new_cache(self, batch_size: int, capacity: int) -> CacheT:
        """Return an empty cache for `capacity` rows per sequence, pending rows included."""
        ...

    def prefill(
        self, prompts: Sequence[Sequence[int]], cache: CacheT, prefix: PrefixT | None = None
    ) -> torch.Tensor:  # [B, V]
        """Commit all prompt rows and return the logits after each prompt's last token."""
        ...

    def forward(self, trees: Sequence[TokenTree], cache: CacheT) -> torch.Tensor:  # [B, N, V]
        """Return logits after every node; N is the largest tree, rows of absent nodes undefined.

        The nodes' cache rows become pending.
        """
        ...


@runtime_checkable
class TappedView(TargetView[CacheT, PrefixT], Protocol[CacheT, PrefixT]):
    """A target that can show its hidden states; see `specdec_core.models.taps`."""

    def check_taps(self, taps: Sequence[int]) -> None:
        """Check that it has these hidden states, with a ConfigError."""
        ...

    def prefill_tapped(
        self,
        prompts: Sequence[Sequence[int]],
        cache: CacheT,
        taps: Sequence[int],
        prefix: PrefixT | None = None,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Do as `prefill`; return also the hidden states of each prompt, [tokens, T, hidden]."""
        ...

    def forward_tapped(
        self, trees: Sequence[TokenTree], cache: CacheT, taps: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Do as `forward`; return also the hidden states of the nodes, [B, N, T, hidden]."""
        ...
