"""Whether an exported checkpoint computes what the sparse view does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from specdec_core.config.base import Record
from specdec_core.config.settings import Settings
from specdec_core.errors import ExportError
from specdec_core.models.loading import load_target
from specdec_core.models.quiet import no_progress_bars
from specdec_core.models.reference import ResolvedModel
from specdec_core.skip import SkipConfig

_LENGTHS = (1, 7, 40)
_MAX_LENGTH = 1100  # tokens; longer windows are not crossed, for the time it takes
# Of the largest logit. The library sums in another order, in float32 as well.
_TOLERANCE = 1e-4


class ExportCheck(Record):
    """How a checkpoint in `transformers` compares with the sparse view, both in float32.

    There is no check of an export whose logits in this engine are not the view's, bit by bit.
    """

    prompt_tokens: tuple[int, ...] = Field(description="lengths of the prompts compared")
    crosses_windows: bool = Field(description="whether a prompt is longer than every window")
    largest_difference: float = Field(
        description="between logits of transformers for the export and of the view"
    )
    largest_logit: float = Field(description="magnitude, for comparison")


def check_export(source: ResolvedModel, skip: SkipConfig, folder: Path) -> ExportCheck:
    """Compare logits after several prompts, of one token up to beyond the sliding windows.

    Args:
        source: The checkpoint with all layers.
        skip: What the export leaves out.
        folder: The export.

    Raises:
        ExportError: if the export computes something else.
    """
    exported = replace(source, reference=f"path:{folder}", folder=folder, identity="")
    prompts, crosses = _prompts(source)
    wanted = _engine_logits(source, skip, prompts)
    ours = _engine_logits(exported, SkipConfig(), prompts)
    library = _library_logits(folder, prompts)
    largest = float(wanted.abs().max())
    difference = float((library - wanted).abs().max())
    has_same_choice = torch.equal(library.argmax(-1), wanted.argmax(-1))
    if not torch.equal(ours, wanted) or difference > _TOLERANCE * largest or not has_same_choice:
        raise ExportError(
            f"the exported checkpoint does not compute what the sparse view does: its logits "
            f"differ by up to {difference:.3g} in transformers and by up to "
            f"{float((ours - wanted).abs().max()):.3g} here, of {largest:.3g}; nothing was kept"
        )
    return ExportCheck(
        prompt_tokens=tuple(map(len, prompts)),
        crosses_windows=crosses,
        largest_difference=difference,
        largest_logit=largest,
    )


def _prompts(model: ResolvedModel) -> tuple[list[list[int]], bool]:
    """Return prompts of arbitrary tokens, and whether one is longer than every window."""
    from specdec_core.models.architecture import read_architecture

    arch, _ = read_architecture(model.folder)
    widest = max((shape.window or 0 for shape in arch.layers), default=0)
    most = min(_MAX_LENGTH, arch.max_positions)
    lengths = sorted({min(length, most) for length in (*_LENGTHS, widest + 9)})
    prompts = [[(17 + 31 * i) % arch.vocab_size for i in range(length)] for length in lengths]
    return prompts, lengths[-1] > widest


def _engine_logits(model: ResolvedModel, skip: SkipConfig, prompts: list[list[int]]) -> Tensor:
    """Return the logits after each prompt, ``[prompts, V]``, in float32 by torch's operators."""
    settings = Settings().model_copy(update={"native": False})
    view = load_target(model, dtype="float32", device="cpu", settings=settings).view(skip)
    return torch.cat([view.prefill([ids], view.new_cache(1, len(ids))) for ids in prompts])


def _library_logits(folder: Path, prompts: list[list[int]]) -> Tensor:
    """Return the same from the library's own model."""
    from transformers import AutoModelForCausalLM

    with no_progress_bars():
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    with torch.inference_mode():
        rows = [
            model(torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits[:, -1]
            for ids in prompts
        ]
    return torch.cat(rows)
