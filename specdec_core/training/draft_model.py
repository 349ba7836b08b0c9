"""An independent causal language model as a draft that can be trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from specdec_core.drafts.provenance_file import PRUNED_FILE
from specdec_core.drafts.vocabulary_file import read_vocabulary
from specdec_core.errors import ConfigError
from specdec_core.export.checkpoint import LEGAL_FILES
from specdec_core.models.files import description_files
from specdec_core.models.quiet import no_progress_bars
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput, DraftPass, Head
from specdec_core.training.losses.counts import PassRows

_LIBRARY_FILES = ("config.json", "generation_config.json")  # written anew
_COMPANIONS = (PRUNED_FILE, *LEGAL_FILES)


class DraftModel:
    """A `transformers` model with its own weights; reads tokens only, one pass for all depths.

    The file of a narrowed vocabulary beside its weights limits what it predicts, not what it
    reads: the other rows of its head have no gradient from the losses.

    Args:
        module: A causal language model with `model`, its body, and `lm_head`.
        folder: Checkpoint that it was loaded from; gives tokenizer and vocabulary files to `save`.
    """

    taps: tuple[int, ...] = ()

    def __init__(self, module: nn.Module, folder: Path) -> None:
        self.module: nn.Module = module
        self._model: Any = module
        self._folder = folder
        vocabulary = read_vocabulary(folder, self._head.weight.shape[0])
        self._target_ids = None if vocabulary is None else vocabulary.target_ids

    @classmethod
    def load(
        cls, folder: Path, *, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> DraftModel:
        """Load the checkpoint in `folder` with master weights of type `dtype`.

        Raises:
            ConfigError: if it cannot be loaded.
        """
        from transformers import AutoModelForCausalLM

        try:
            with no_progress_bars():
                module = AutoModelForCausalLM.from_pretrained(
                    folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
                )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ConfigError(
                f"draft {folder} cannot be loaded ({type(error).__name__}: {error}): give the "
                "folder of a causal language model with all of its weights"
            ) from error
        return cls(module.to(device), folder)

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """Its transformer blocks, in order."""
        return list(self._model.model.layers)

    def rows(self, batch: TrainingBatch) -> tuple[PassRows, ...]:  # noqa: ARG002 - the same for all
        """Return the rows of its pass: every one predicts the next token."""
        return (PassRows(1, None, self._ids_on(self._head.weight), self._head.weight.shape[0]),)

    def auxiliary_counts(self, batch: TrainingBatch) -> Mapping[str, float]:  # noqa: ARG002
        """Return nothing: it has no further losses."""
        return {}

    def forward(self, batch: TrainingBatch) -> DraftOutput:
        """Return its predictions for a batch, teacher-forced.

        Padding is on the right, where no row of a sequence looks: it needs no mask, and without
        one attention computes its lower triangle only.
        """
        ids = batch.input_ids
        known = ids.masked_fill(ids >= self._model.config.vocab_size, 0)  # as decoding runs it
        output = self._model.model(input_ids=known, use_cache=False)
        return DraftOutput((DraftPass(output.last_hidden_state, self._make_head()),), {})

    def save(self, folder: Path) -> None:
        """Write it as a Hugging Face checkpoint of type bfloat16, with its tokenizer.

        Raises:
            ConfigError: if `folder` is not empty.
        """
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty: give an empty folder for the draft")
        folder.mkdir(parents=True, exist_ok=True)
        self._model.save_pretrained(folder, state_dict=self._rounded())
        # The library writes the type of the module, which is that of the master weights.
        config = json.loads((folder / "config.json").read_text())
        config["dtype"] = "bfloat16"
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        companions = {path for pattern in _COMPANIONS for path in self._folder.glob(pattern)}
        for path in {*description_files(self._folder), *companions}:
            if path.name not in _LIBRARY_FILES:
                shutil.copyfile(path, folder / path.name)

    def _rounded(self) -> dict[str, Tensor]:
        """Return the weights in bfloat16; names that share a tensor go on sharing it."""
        by_place: dict[int, Tensor] = {}
        state = {}
        for name, weight in self._model.state_dict().items():
            if weight.data_ptr() not in by_place:
                by_place[weight.data_ptr()] = weight.detach().to("cpu", torch.bfloat16)
            state[name] = by_place[weight.data_ptr()]
        return state

    @property
    def _head(self) -> Any:
        return self._model.get_output_embeddings()

    def _make_head(self) -> Head:
        ids = self._ids_on(self._head.weight)
        weight, bias = self._head.weight, getattr(self._head, "bias", None)
        if ids is None:
            return Head(weight, bias)
        return Head(weight[ids], None if bias is None else bias[ids], ids)

    def _ids_on(self, weight: Tensor) -> Tensor | None:
        return None if self._target_ids is None else self._target_ids.to(weight.device)
