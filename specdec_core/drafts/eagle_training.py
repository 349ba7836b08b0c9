"""Training passes of EAGLE heads: whole sequences, teacher-forced, beside the frozen target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from specdec_core.drafts.checkpoint import save_draft
from specdec_core.drafts.eagle import EagleHead, unrolled_mix
from specdec_core.drafts.specs import DraftTarget, Provenance
from specdec_core.drafts.trainable import FrozenEnds, rows_with_token
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.rotary import RotaryTable
from specdec_core.randomness import derive_seed, uniform_stream
from specdec_core.training.alignment import by_position, prediction_mask
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, DraftPass, Head
from specdec_core.training.losses.counts import PassRows


@dataclass(frozen=True, slots=True)
class EagleTraining:
    """How a head is trained.

    Attributes:
        num_steps: Version 3: steps unrolled on its own outputs, the one on features included.
        regression_weight: Version 1: factor of the distance to the target's features.
        feature_noise: Version 1: half width of the uniform noise on features.
        seed: Of the noise.
    """

    num_steps: int = 7
    regression_weight: float = 1.0
    feature_noise: float = 0.2
    seed: int = 0


class EagleModule(nn.Module):
    """A head between the frozen target's embedding and, for version 1, its language-model head."""

    def __init__(
        self,
        head: EagleHead,
        ends: FrozenEnds,
        rotary: RotaryTable,
        training: EagleTraining,
        vocabulary: DraftVocabulary | None = None,
    ) -> None:
        super().__init__()
        self.head, self.ends = head, ends
        self._rotary, self._training, self._vocabulary = rotary, training, vocabulary
        self._noisy_step: int | None = None

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        """Return the passes of a batch.

        Pass s predicts token t + s + 2 from row t: from the target's states up to token t and the
        tokens up to t + s + 1, where decoding has its own drafts in place of the last s. Version 1
        has one pass; in decoding, deeper drafts read its outputs as if they were features.

        Raises:
            ConfigError: if the batch lacks the hidden states that version 3 reads.
        """
        return self._one_pass(batch) if self.head.spec.version == 1 else self._unrolled(batch)

    @contextmanager
    def noisy(self, step: int) -> Iterator[None]:
        """Let the passes of version 1 see the noise of update `step`."""
        self._noisy_step = step
        try:
            yield
        finally:
            self._noisy_step = None

    def _one_pass(self, batch: TrainingBatch) -> DraftOutput:
        """Read the true features once, and measure how far outputs are from the next features."""
        kind = self.head.fc.weight.dtype
        features = batch.hidden.to(kind)
        embedded, is_there = self._tokens(batch, 1)
        residual, x = self.head.enter(features + self._noise(batch, features), embedded)
        query, keys, values = self.head.block.project(x, self._rotary_at(features, 0))
        states = self.head.block.finish(residual, self.head.block.mix_causal(query, keys, values))
        passed = DraftPass(states, self.ends.head, shift=2, mask=is_there)
        auxiliary = {}
        if self._training.regression_weight > 0.0:
            auxiliary["regression"] = self._regression(batch, features, states, is_there)
        return DraftOutput((passed,), auxiliary)

    def _regression(
        self, batch: TrainingBatch, features: Tensor, states: Tensor, is_there: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the weighted distances of predicted and true features, summed, and their number.

        Where row i predicts token i + 2 of a response, its output is compared with feature i + 1.

        Source: EAGLE, section 4.2: smooth L1, averaged over features.
        """
        distance = functional.smooth_l1_loss(
            by_position(states, 1).float(), features.float(), reduction="none"
        ).mean(-1)  # [B, N], by the feature predicted
        counts = prediction_mask(batch.response_mask, 2, is_there)  # by the token predicted
        of_feature = functional.pad(counts[:, 1:], (0, 1))
        weighted = self._training.regression_weight * distance.masked_fill(~of_feature, 0.0).sum()
        return weighted, of_feature.sum()

    def _unrolled(self, batch: TrainingBatch) -> DraftOutput:
        """Read features first and then, step by step, the outputs of the step before."""
        if batch.taps is None:
            taps = self.head.spec.taps
            raise ConfigError(
                f"EAGLE-3 reads hidden states {list(taps)} of the target, which the training data "
                f"lacks: generate it with hidden=taps and taps={'/'.join(map(str, taps))}"
            )
        block = self.head.block
        states = self.head.features(batch.taps.to(self.head.fc.weight.dtype))
        head = Head(self.head.lm_head.weight, target_ids=self._target_ids(states.device))
        own_rows: list[tuple[Tensor, Tensor]] = []
        passes = []
        for step in range(self._training.num_steps):
            embedded, is_there = self._tokens(batch, step + 1)
            residual, x = self.head.enter(states, embedded)
            query, keys, values = block.project(x, self._rotary_at(states, step))
            if step == 0:
                true_rows = keys, values
                mixed = block.mix_causal(query, keys, values)
            else:
                own_rows.append((keys, values))
                mixed = unrolled_mix(block, query, true_rows, own_rows)
            states = block.finish(residual, mixed)
            passes.append(DraftPass(self.head.leave(states), head, shift=step + 2, mask=is_there))
        return DraftOutput(tuple(passes), {})

    def _tokens(self, batch: TrainingBatch, shift: int) -> tuple[Tensor, Tensor]:
        """Return the embedding of the token `shift` behind every row, and whether there is one."""
        ids = functional.pad(batch.input_ids[:, shift:], (0, min(shift, batch.input_ids.shape[1])))
        embedded = self.ends.embed(ids).to(self.head.fc.weight.dtype)
        return embedded, rows_with_token(batch, shift)

    def rows(self, batch: TrainingBatch) -> tuple[PassRows, ...]:
        """Return the rows of every pass, which need no model."""
        if self.head.spec.version == 1:
            size = self.ends.head.weight.shape[0]
            return (PassRows(2, rows_with_token(batch, 1), None, size),)
        ids, size = self._target_ids(batch.input_ids.device), self.head.lm_head.weight.shape[0]
        return tuple(
            PassRows(step + 2, rows_with_token(batch, step + 1), ids, size)
            for step in range(self._training.num_steps)
        )

    def auxiliary_counts(self, batch: TrainingBatch) -> dict[str, float]:
        """Return the number of features that the regression compares, which needs no model."""
        if self.head.spec.version != 1 or self._training.regression_weight == 0.0:
            return {}
        counts = prediction_mask(batch.response_mask, 2, rows_with_token(batch, 1))
        return {"regression": float(counts[:, 1:].sum())}

    def _rotary_at(self, like: Tensor, offset: int) -> tuple[Tensor, Tensor]:
        """Return the tables of every row's position plus `offset`, ``[1, N, 1, d]``."""
        last = like.shape[1] - 1 + offset
        # Tables made in inference mode could not be used with gradients later.
        with torch.inference_mode(mode=False):
            positions = torch.arange(like.shape[1])[None] + offset
            cos, sin = self._rotary.at(positions, last)[self.head.spec.block.rope]
        return cos.to(like), sin.to(like)

    def _noise(self, batch: TrainingBatch, features: Tensor) -> Tensor | float:
        """Return uniform noise like `features` within `noisy`, else 0.

        That of a sequence is a function of the step and of the sample, whatever batch it is in.

        Source: EAGLE, section 4.2, uniform noise on features.
        """
        width, step = self._training.feature_noise, self._noisy_step
        if width == 0.0 or step is None:
            return 0.0
        names = (self._training.seed, "feature-noise", step)
        starts = [derive_seed(*names, sample_id) for sample_id in batch.sample_ids]
        places = torch.arange(features[0].numel(), device=features.device)
        uniform = torch.stack([uniform_stream(start, places) for start in starts])
        return (uniform.to(features.dtype).view_as(features) - 0.5) * (2.0 * width)

    def _target_ids(self, device: torch.device) -> Tensor | None:
        return None if self._vocabulary is None else self._vocabulary.target_ids.to(device)


class TrainableEagle:
    """An EAGLE head as the trainer knows drafts; see `TrainableDraft`.

    Version 1 reads `TrainingBatch.hidden`, version 3 `TrainingBatch.taps`.
    """

    def __init__(self, module: EagleModule, target: DraftTarget, provenance: Provenance) -> None:
        self.module: nn.Module = module
        self._eagle, self._target, self._provenance = module, target, provenance

    @property
    def taps(self) -> tuple[int, ...]:
        """Hidden states that it reads beside the head's input."""
        spec = self._eagle.head.spec
        return () if spec.version == 1 else spec.taps

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        """Return its predictions for a batch, teacher-forced."""
        output: DraftOutput = self.module(batch)
        return output

    def noisy(self, step: int) -> AbstractContextManager[None]:
        """Return the context of update `step`, in which passes see its noise."""
        return self._eagle.noisy(step)

    def rows(self, batch: TrainingBatch) -> tuple[PassRows, ...]:
        """Return the rows that each pass of `forward` will have."""
        return self._eagle.rows(batch)

    def auxiliary_counts(self, batch: TrainingBatch) -> Mapping[str, float]:
        """Return the number of positions of each auxiliary loss of `forward`."""
        return self._eagle.auxiliary_counts(batch)

    def save(self, folder: Path) -> None:
        """Write what decoding loads into an empty folder; nothing of the target's."""
        save_draft(
            folder,
            self._eagle.head.spec,
            self._eagle.head,
            target=self._target,
            vocabulary=self._eagle._vocabulary,
            provenance=self._provenance,
        )
