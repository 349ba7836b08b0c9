"""What is frozen beside a drafter in training, and the trainable form of Medusa heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from specdec_core.drafts.checkpoint import save_draft
from specdec_core.drafts.medusa import MedusaHeads
from specdec_core.drafts.specs import DraftTarget, Provenance
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, DraftPass, Head
from specdec_core.training.losses.counts import PassRows


class FrozenEnds(nn.Module):
    """The target's embedding and head.

    They move with the module but are no parameters: nothing trains, shards or stores them.

    Args:
        embedding: ``[V, h]`` as stored.
        embed_scale: What the target multiplies it by.
        head: The target's head; may share the embedding's memory.
    """

    def __init__(self, embedding: Tensor, embed_scale: float, head: Head) -> None:
        super().__init__()
        self.register_buffer("_embedding", embedding, persistent=False)
        self.register_buffer("_weight", head.weight, persistent=False)
        self.register_buffer("_bias", head.bias, persistent=False)
        self._scale = embed_scale

    @property
    def head(self) -> Head:
        """The target's head."""
        weight, bias = self._weight, self._bias
        assert isinstance(weight, Tensor)
        assert bias is None or isinstance(bias, Tensor)
        return Head(weight, bias)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the scaled embeddings ``[.., h]`` of token ids."""
        embedding = self._embedding
        assert isinstance(embedding, Tensor)
        return embed_tokens(ids, embedding, self._scale)


def embed_tokens(ids: Tensor, embedding: Tensor, scale: float) -> Tensor:
    """Return what a target makes of token ids in front of its first block, ``[.., h]``."""
    rows = functional.embedding(ids, embedding)
    return rows if scale == 1.0 else rows * scale


def rows_with_token(batch: TrainingBatch, shift: int) -> Tensor:
    """Return which rows have a token `shift` places behind them in their sequence, ``[B, N]``."""
    places = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device) + shift
    return places[None] < batch.lengths.to(places.device)[:, None]


class MedusaModule(nn.Module):
    """Medusa heads as a training module."""

    def __init__(self, heads: MedusaHeads, vocabulary: DraftVocabulary | None = None) -> None:
        super().__init__()
        self.heads, self.vocabulary = heads, vocabulary

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        """Return one pass per head: head m predicts token t + m + 2 from row t."""
        first = next(self.heads.parameters())
        hidden = batch.hidden.to(first.dtype)
        passes = tuple(
            DraftPass(states, Head(weight, target_ids=row.target_ids), row.shift, row.mask)
            for states, weight, row in zip(
                self.heads.states(hidden), self.heads.weights, self.rows(batch), strict=True
            )
        )
        return DraftOutput(passes, {})

    def rows(self, batch: TrainingBatch) -> tuple[PassRows, ...]:
        """Return the rows of every pass, which need no model."""
        target_ids = None
        if self.vocabulary is not None:
            target_ids = self.vocabulary.target_ids.to(batch.input_ids.device)
        is_there = rows_with_token(batch, 0)
        return tuple(
            PassRows(m + 2, is_there, target_ids, weight.shape[0])
            for m, weight in enumerate(self.heads.weights)
        )


class TrainableMedusa:
    """Medusa heads as the trainer knows drafts; see `TrainableDraft`."""

    def __init__(self, module: MedusaModule, target: DraftTarget, provenance: Provenance) -> None:
        self.module: nn.Module = module
        self._medusa, self._target, self._provenance = module, target, provenance

    @property
    def taps(self) -> tuple[int, ...]:
        """Nothing beside the head's input."""
        return ()

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        """Return its predictions for a batch."""
        output: DraftOutput = self.module(batch)
        return output

    def rows(self, batch: TrainingBatch) -> tuple[PassRows, ...]:
        """Return the rows that each pass of `forward` will have."""
        return self._medusa.rows(batch)

    def auxiliary_counts(self, batch: TrainingBatch) -> Mapping[str, float]:  # noqa: ARG002 - none
        """Return nothing: it has no further losses."""
        return {}

    def save(self, folder: Path) -> None:
        """Write what decoding loads into an empty folder; nothing of the target's."""
        save_draft(
            folder,
            self._medusa.heads.spec,
            self._medusa.heads,
            target=self._target,
            vocabulary=self._medusa.vocabulary,
            provenance=self._provenance,
        )
