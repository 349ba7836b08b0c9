"""EAGLE heads: one decoder layer over pairs of a hidden state and the embedding of what follows.

Row i reads what the target made of token i, its feature, and the embedding of token i + 1, which
the target wrote or was given. Its output stands for the feature of token i + 1 and predicts token
i + 2. Row i has position i. Where the target's own feature is not there yet, which is so from the
second drafted token on, the output of the row before is read in its place.

Source: EAGLE (Li et al. 2024), section 4.1, for version 1; EAGLE-3 (Li et al. 2025), section 3,
for version 3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from specdec_core.drafts.block import DraftBlock, Norm, linear, pack_linear
from specdec_core.drafts.specs import EagleSpec
from specdec_core.models.linear import Linear, Storage


class EagleHead(nn.Module):
    """The parameters of a head, and what it does beside attention.

    Version 1 joins embedding and feature into one input, without a norm, and its output is read
    by the target's own head. Version 3 joins the target's features once, normalises embedding and
    state apart, hands attention both side by side, and has a final norm and a head of its own.

    Args:
        spec: What it is made of.
        vocab_size: Rows of the target's head, V.
    """

    def __init__(self, spec: EagleSpec, vocab_size: int) -> None:
        super().__init__()
        h, shape = spec.hidden_size, spec.block
        self.spec = spec
        self._fc: Linear | None = None
        self._head: Linear | None = None
        if spec.version == 1:
            self.fc = linear(2 * h, h, bias=True)
            self.block = DraftBlock(shape, h)
            return
        self.fc = linear(len(spec.taps) * h, h, bias=False)
        self.embedding_norm = Norm(h, shape.norm_eps)
        self.state_norm = Norm(h, shape.norm_eps)
        self.block = DraftBlock(shape, 2 * h)
        self.norm = Norm(h, shape.norm_eps)
        self.lm_head = linear(h, spec.draft_vocab_size or vocab_size, bias=False)

    def start_as_target(self, head: Tensor) -> None:
        """Start version 3's own head as rows ``[V_d, h]`` of the target's."""
        with torch.no_grad():
            self.lm_head.weight.copy_(head)

    def pack(self, storage: Storage) -> None:
        """Lay the maps out for decoding; from then on there are no gradients."""
        self.block.pack(storage)
        self._fc = pack_linear(self.fc, storage)
        if self.spec.version == 3:
            self._head = pack_linear(self.lm_head, storage)

    def features(self, taps: Tensor) -> Tensor:
        """Return the states ``[.., h]`` that rows read, from the target's ``[.., T * h]``."""
        return taps if self.spec.version == 1 else self._join(taps)

    def enter(self, states: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the layer's residual stream ``[B, N, h]`` and what its attention reads.

        Args:
            states: ``[B, N, h]``: features, or outputs of earlier rows.
            embedded: ``[B, N, h]``: scaled embeddings of the tokens behind them.
        """
        if self.spec.version == 1:
            residual = self._join(torch.cat((embedded, states), -1))
            return residual, residual
        pair = self.embedding_norm(embedded), self.state_norm(states)
        return states, torch.cat(pair, -1)

    def leave(self, states: Tensor) -> Tensor:
        """Return what a language-model head reads of the layer's output, same shape."""
        if self.spec.version == 1:
            return states
        normed: Tensor = self.norm(states)
        return normed

    def own_logits(self, states: Tensor) -> Tensor:
        """Return version 3's logits ``[.., V_d]`` of outputs of the layer."""
        normed = self.leave(states)
        logits: Tensor = self._head(normed) if self._head is not None else self.lm_head(normed)
        return logits

    def _join(self, x: Tensor) -> Tensor:
        # Under autocast the residual stream stays in the parameters' type.
        if self._fc is not None:
            return self._fc(x)
        joined: Tensor = self.fc(x)
        return joined.to(self.fc.weight.dtype)


def unrolled_mix(
    block: DraftBlock,
    query: Tensor,
    true_rows: tuple[Tensor, Tensor],
    own_rows: list[tuple[Tensor, Tensor]],
) -> Tensor:
    """Return attention of a step of the training-time test, ``[B, N, H, d]``.

    Row t stands for a draft that starts behind the target's feature t. It sees the true rows 0
    to t, and of the drafted rows those of the same start: one per step so far, its own the last.

    Args:
        block: The layer.
        query: ``[B, N, H, d]`` of this step.
        true_rows: Keys and values ``[B, N, K, d]`` of the step that read features.
        own_rows: The same of every later step, this one's last.

    Source: EAGLE-3, section 3.2 and figure 6.
    """
    shape = block.shape
    kind = torch.promote_types(query.dtype, torch.float32)
    batch, num, _, d = query.shape
    grouped = query.reshape(batch, num, shape.num_kv_heads, -1, d).to(kind)  # [B, N, K, G, d]
    keys, values = (rows.to(kind) for rows in true_rows)
    causal = torch.ones(num, num, dtype=torch.bool, device=query.device).tril()
    scores = torch.einsum("bnkgd,bmkd->bkgnm", grouped, keys)
    scores = scores.masked_fill(~causal, -torch.inf)
    own_keys = torch.stack([key for key, _ in own_rows], -1).to(kind)  # [B, N, K, d, S]
    own_values = torch.stack([value for _, value in own_rows], -1).to(kind)
    own_scores = torch.einsum("bnkgd,bnkds->bkgns", grouped, own_keys)
    shares = functional.softmax(torch.cat((scores, own_scores), -1) * shape.attention_scale, -1)
    mixed = torch.einsum("bkgnm,bmkd->bnkgd", shares[..., :num], values)
    mixed = mixed + torch.einsum("bkgns,bnkds->bnkgd", shares[..., num:], own_values)
    return mixed.flatten(2, 3).to(query.dtype)
