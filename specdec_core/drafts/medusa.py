"""Medusa heads: further tokens predicted from the target's last hidden state, all at once.

Row t reads the head's input of token t, from which the target itself predicts token t + 1. Head m
predicts the token m + 1 places behind that, t + m + 2.

Source: Medusa (Cai et al. 2024), section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from specdec_core.drafts.block import linear, pack_linear
from specdec_core.drafts.specs import MedusaSpec
from specdec_core.models.linear import Linear, Storage


class ResidualBlock(nn.Module):
    """``x + SiLU(W x + b)``, which starts as the identity."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = linear(size, size, bias=True)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self._packed: Linear | None = None

    def pack(self, storage: Storage) -> None:
        """Lay the map out for decoding."""
        self._packed = pack_linear(self.linear, storage)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[.., h]`` for `x` of the same shape."""
        mapped = self.linear(x) if self._packed is None else self._packed(x)
        bent: Tensor = functional.silu(mapped)
        return x + bent


class MedusaHeads(nn.Module):
    """All heads: blocks of its own and a language-model head of its own for each.

    Args:
        spec: What they are made of.
        vocab_size: Rows of the target's head, V.
    """

    def __init__(self, spec: MedusaSpec, vocab_size: int) -> None:
        super().__init__()
        h, rows = spec.hidden_size, spec.draft_vocab_size or vocab_size
        self.spec = spec
        self.blocks = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(h) for _ in range(spec.num_blocks)))
            for _ in range(spec.num_heads)
        )
        self.lm_heads = nn.ModuleList(linear(h, rows, bias=False) for _ in range(spec.num_heads))
        self._packed: list[Linear] | None = None

    def start_as_target(self, head: Tensor) -> None:
        """Make every head predict what the target's head ``[V_d, h]`` does of the same row."""
        with torch.no_grad():
            for weight in self.weights:
                weight.copy_(head)
            for parameter in self.blocks.parameters():
                parameter.zero_()

    def pack(self, storage: Storage) -> None:
        """Lay the maps out for decoding; from then on there are no gradients."""
        for block in self.blocks.modules():
            if isinstance(block, ResidualBlock):
                block.pack(storage)
        self._packed = [pack_linear(cast(nn.Linear, one), storage) for one in self.lm_heads]
        self.lm_heads = nn.ModuleList()  # the largest part, not kept twice

    @property
    def weights(self) -> list[Tensor]:
        """Every language-model head, ``[V_d, h]``."""
        return [cast(nn.Linear, one).weight for one in self.lm_heads]

    def states(self, hidden: Tensor) -> list[Tensor]:
        """Return what each language-model head reads, ``[.., h]`` each.

        Args:
            hidden: ``[.., h]``: the input of the target's head.
        """
        return [blocks(hidden) for blocks in self.blocks]

    def logits(self, hidden: Tensor, num: int) -> Tensor:
        """Return the logits ``[num, V_d]`` of the first heads after one row.

        Args:
            hidden: ``[h]``.
            num: How many heads, at least 1.
        """
        heads: Sequence[Callable[[Tensor], Tensor]] = self._packed or list(self.lm_heads)
        states = [blocks(hidden[None]) for blocks in self.blocks[:num]]
        return torch.cat([head(state) for head, state in zip(heads, states, strict=False)])
