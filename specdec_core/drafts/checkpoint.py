"""Checkpoints of learned drafters: a manifest and their own weights, nothing of the target's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from specdec_core.drafts.eagle import EagleHead
from specdec_core.drafts.manifest import MANIFEST, WEIGHTS, read_draft_manifest, verify_draft
from specdec_core.drafts.medusa import MedusaHeads
from specdec_core.drafts.specs import DraftManifest, DraftSpec, DraftTarget, EagleSpec, Provenance
from specdec_core.drafts.vocabulary import DraftVocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.files import file_sha256, write_whole

_TARGET_IDS = "target_ids"


@dataclass(frozen=True, slots=True)
class LearnedDraft:
    """The weights of a learned drafter in memory.

    Attributes:
        module: They themselves.
        vocabulary: The target's ids of its head's rows, where they are narrowed.
        target: What it was trained for.
    """

    module: EagleHead | MedusaHeads
    vocabulary: DraftVocabulary | None
    target: DraftTarget

    @property
    def spec(self) -> EagleSpec | DraftSpec:
        """What it is made of."""
        return self.module.spec


def new_module(spec: DraftSpec, vocab_size: int) -> EagleHead | MedusaHeads:
    """Return the module that `spec` describes, its weights still to be set."""
    if isinstance(spec, EagleSpec):
        return EagleHead(spec, vocab_size)
    return MedusaHeads(spec, vocab_size)


def save_draft(
    folder: Path,
    spec: DraftSpec,
    module: nn.Module,
    *,
    target: DraftTarget,
    vocabulary: DraftVocabulary | None = None,
    provenance: Provenance | None = None,
) -> DraftManifest:
    """Write a drafter into a new or empty folder and return its manifest.

    The manifest is written last: a folder without one is no checkpoint.

    Raises:
        ConfigError: if the folder holds a drafter already, or the vocabulary is not of the size
            that `spec` says.
    """
    if (folder / MANIFEST).exists():
        raise ConfigError(f"{folder} holds a drafter already: name an empty folder")
    num_ids = None if vocabulary is None else len(vocabulary)
    if num_ids != spec.draft_vocab_size:
        raise ConfigError(
            f"the drafter's head has {spec.draft_vocab_size} narrowed ids, but its vocabulary "
            f"{num_ids}: give the one it was made for"
        )
    tensors = {name: value.detach().contiguous() for name, value in module.state_dict().items()}
    if vocabulary is not None:
        tensors[_TARGET_IDS] = vocabulary.target_ids
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{WEIGHTS}"
    save_file({name: value.cpu() for name, value in tensors.items()}, temporary)
    temporary.replace(folder / WEIGHTS)
    manifest = DraftManifest(
        draft=spec,
        target=target,
        provenance=provenance or Provenance(),
        weights_hash=file_sha256(folder / WEIGHTS),
    )
    write_whole(folder / MANIFEST, manifest.model_dump_json(indent=2) + "\n")
    return manifest


def load_draft(folder: Path, *, dtype: torch.dtype, device: torch.device) -> LearnedDraft:
    """Return the drafter in `folder`, its weights converted.

    Raises:
        ConfigError: if manifest or weights are missing or damaged, or do not fit each other.
    """
    manifest = read_draft_manifest(folder)
    module = new_module(manifest.draft, manifest.target.vocab_size).to(dtype)
    tensors = _read_tensors(folder)
    vocabulary = _take_vocabulary(folder, manifest, tensors)
    _check_tensors(folder, module.state_dict(), tensors)
    verify_draft(folder)
    module.load_state_dict(tensors)
    moved = module.to(device).eval().requires_grad_(requires_grad=False)
    return LearnedDraft(moved, vocabulary, manifest.target)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    path = folder / WEIGHTS
    if not path.exists():
        raise ConfigError(f"{folder} lacks {WEIGHTS}: fetch the checkpoint anew")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise ConfigError(
            f"{path} is damaged or only a pointer to the file ({error}): fetch it anew"
        ) from error


def _take_vocabulary(
    folder: Path, manifest: DraftManifest, tensors: dict[str, Tensor]
) -> DraftVocabulary | None:
    """Remove the map of a narrowed vocabulary from `tensors` and return it."""
    size = manifest.draft.draft_vocab_size
    if size is None:
        return None
    if _TARGET_IDS not in tensors or len(tensors[_TARGET_IDS]) != size:
        raise ConfigError(
            f"{folder} has a head of {size} ids without a map of as many to the target's: fetch "
            "the checkpoint anew"
        )
    vocabulary = DraftVocabulary(tensors.pop(_TARGET_IDS))
    vocabulary.check_fits(manifest.target.vocab_size)
    return vocabulary


def _check_tensors(folder: Path, wanted: dict[str, Tensor], found: dict[str, Tensor]) -> None:
    """Check that the weight file has every tensor of the module and no other.

    Raises:
        ConfigError: naming what is missing, foreign or of another shape.
    """
    advice = "weights and config.json do not belong together, fetch both anew"
    if missing := sorted(wanted.keys() - found.keys()):
        raise ConfigError(f"{folder} lacks {len(missing)} tensors ({missing[0]}, ..): {advice}")
    if foreign := sorted(found.keys() - wanted.keys()):
        raise ConfigError(
            f"{folder} holds {len(foreign)} tensors that no such drafter has ({foreign[0]}, ..): "
            f"{advice}"
        )
    for name, tensor in wanted.items():
        if tensor.shape != found[name].shape:
            raise ConfigError(
                f"tensor {name!r} in {folder} has shape {tuple(found[name].shape)}, but its "
                f"config.json says {tuple(tensor.shape)}: {advice}"
            )
