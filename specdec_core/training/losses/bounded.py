"""The memory-bounded form of all losses: hidden states and heads in, logits chunk by chunk.

Positions are worked on in chunks. Each chunk's logits become scores; the gradient of the loss for
the scores is taken on the small ``[J, B, N]`` arrays, turned into a gradient for the chunk's logits
by closed forms, and multiplied into hidden states and head at once. What is kept is one chunk, the
scores and the gradients. A position's gradient depends on at most gamma - 1 positions behind it, so
the next gamma - 1 rows are scored along with each chunk and no logits are made twice; losses that
need all scores first (grpo, lk-lambda unless by position) have a sweep of their own before.

Source: EAL (arXiv 2609.24150), the gradient of windows as a reweighting by position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specdec_core.config.losses import LossConfig
from specdec_core.errors import ConfigError
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftPass, Head
from specdec_core.training.losses.common import LossResult, check_target, prepare
from specdec_core.training.losses.counts import Counts, PassRows
from specdec_core.training.losses.gradients import Gradients
from specdec_core.training.losses.rows import Chunks
from specdec_core.training.losses.sweep import Sweep, make_depths

DEFAULT_CHUNKS = Chunks()


def bounded_loss(
    config: LossConfig,
    batch: TrainingBatch,
    passes: Sequence[DraftPass],
    target_head: Head,
    *,
    reference: Sequence[DraftPass] | None = None,
    denominators: Counts | None = None,
    generators: Sequence[np.random.Generator] | None = None,
    document_ids: Tensor | None = None,
    measures_acceptance: bool = False,
    chunks: Chunks = DEFAULT_CHUNKS,
) -> LossResult:
    """Return the loss of a draft's passes; its `backward` reaches hidden states, heads and biases.

    Without gradients enabled, or where nothing requires them, only scores are computed.

    Args:
        config: What to minimise.
        batch: Tokens, response mask and the target's hidden states.
        passes: The draft's predictions by depth.
        target_head: Of the frozen target; has no gradient.
        reference: Passes of a frozen draft with the same shape; grpo needs them.
        denominators: Counts of the whole step; None for those of this batch.
        generators: One per sequence; they draw grpo's groups.
        document_ids: ``[B, N]`` int where sequences are packed.
        measures_acceptance: Whether expected acceptance is counted too.
        chunks: How much of the logits exists at once.

    Raises:
        ConfigError: if batch, passes and heads do not fit together, or grpo lacks its reference
            or generators.
    """
    check_target(batch, target_head)
    _check_chunks(chunks)
    prepared = prepare(
        config,
        batch,
        [PassRows.of(one) for one in passes],
        has_reference=reference is not None,
        denominators=denominators,
        generators=generators,
        document_ids=document_ids,
    )
    gradients = Gradients(passes if torch.is_grad_enabled() else ())
    with torch.no_grad(), torch.autocast(batch.hidden.device.type, enabled=False):
        before = reference if "grpo" in config.names else None
        depths = make_depths(passes, before, target_head, chunks)
        sweep = Sweep(prepared, depths, batch.hidden, measures_acceptance=measures_acceptance)
        sweep.run(gradients, chunks.rows)
        result = prepared.finish(sweep.scores, measures_acceptance=measures_acceptance)
    return replace(result, loss=gradients.attach(result.loss)) if gradients else result


def _check_chunks(chunks: Chunks) -> None:
    if chunks.rows < 1 or (chunks.vocab is not None and chunks.vocab < 1):
        raise ConfigError(
            f"chunks of {chunks.rows} rows and {chunks.vocab} columns: give at least 1 of each"
        )
