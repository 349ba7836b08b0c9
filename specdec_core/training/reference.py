"""A finished draft as training sees it: its teacher-forced pass, loaded from what it left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from specdec_core.drafts.building import load_ends
from specdec_core.drafts.checkpoint import load_draft
from specdec_core.drafts.eagle import EagleHead
from specdec_core.drafts.eagle_training import EagleModule, EagleTraining
from specdec_core.drafts.trainable import MedusaModule
from specdec_core.errors import ConfigError
from specdec_core.models.architecture import read_architecture
from specdec_core.models.loading import torch_device
from specdec_core.models.reference import ResolvedModel
from specdec_core.models.rotary import RotaryTable
from specdec_core.training.batch import TrainingBatch
from specdec_core.training.draft import DraftOutput
from specdec_core.training.draft_model import DraftModel

DraftForm = Literal["model", "eagle", "medusa"]


@dataclass(frozen=True, slots=True)
class ReferenceDraft:
    """A draft that is asked, not trained.

    Attributes:
        forward: Its passes over a batch.
        taps: Hidden states of the target that it reads beside the head's input.
        exact_depths: Draft depths whose pass sees exactly what decoding does; None for all.
        most_drafted: Most tokens of one path; None where nothing limits it.
    """

    forward: Callable[[TrainingBatch], DraftOutput]
    taps: tuple[int, ...]
    exact_depths: int | None
    most_drafted: int | None = None


def draft_form(folder: Path) -> DraftForm:
    """Return what the draft in `folder` is, from its configuration alone.

    Raises:
        ConfigError: if there is no readable configuration.
    """
    try:
        document = json.loads((folder / "config.json").read_text())
        kind = document.get("draft", {}).get("kind", "model")
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{folder} has no readable config.json ({error}): give the folder of a trained draft"
        ) from error
    if kind not in ("model", "eagle", "medusa"):
        raise ConfigError(f"{folder} holds a draft of unknown kind {kind!r}: train it anew")
    return kind  # type: ignore[no-any-return]  # checked above


def load_reference(
    folder: Path, target: ResolvedModel, *, num_steps: int, device: str = "cpu"
) -> ReferenceDraft:
    """Return the draft in `folder` in float32.

    An independent model sees in decoding what it sees in training at every depth, Medusa's heads
    too. EAGLE-3 is unrolled on its own outputs as decoding does. EAGLE-1 has a single pass on true
    features; deeper drafts read their own outputs, which no pass of its training does.

    Args:
        folder: What training left.
        target: The model it drafts for.
        num_steps: Depths that EAGLE-3 is unrolled for.
        device: Where it runs.

    Raises:
        ConfigError: if the draft cannot be loaded.
    """
    place = torch_device(device)
    if draft_form(folder) == "model":
        model = DraftModel.load(folder, device=place)
        model.module.eval()
        return ReferenceDraft(model.forward, (), None)
    draft = load_draft(folder, dtype=torch.float32, device=place)
    if not isinstance(draft.module, EagleHead):
        medusa = MedusaModule(draft.module, draft.vocabulary)
        num = draft.module.spec.num_heads
        return ReferenceDraft(medusa.forward, (), exact_depths=num, most_drafted=num)
    arch, config = read_architecture(target.folder)
    ends = load_ends(target.folder, dtype="float32", device=device)
    spec = draft.module.spec
    module = EagleModule(
        draft.module,
        ends,
        RotaryTable(arch, config, torch.float32, place),
        EagleTraining(num_steps=num_steps, regression_weight=0.0),
        draft.vocabulary,
    )
    exact = 1 if spec.version == 1 else num_steps
    return ReferenceDraft(module.forward, () if spec.version == 1 else spec.taps, exact)
