"""A sparse view as a checkpoint of its own, for programs that know nothing of skipping."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor, zeros_like

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError
from specdec_core.export.card import CardFigure, model_card
from specdec_core.export.check import ExportCheck, check_export
from specdec_core.export.files import MANIFEST_FILE
from specdec_core.models.architecture import read_architecture
from specdec_core.models.files import description_files, weight_files
from specdec_core.models.reference import ResolvedModel
from specdec_core.models.weights import canonical_name, is_read
from specdec_core.skip import SkipConfig, UnitKind

_LAYER_TENSOR = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<rest>.+)")
LEGAL_FILES = ("LICENSE*", "NOTICE*", "USE_POLICY*")
# Rules by layer number, wrong once layers are gone: the list of layer types says it all.
_NUMBERED_RULES = ("sliding_window_pattern", "_sliding_window_pattern")
_MAX_SHARD = "5GB"


class ExportedCheckpoint(Record):
    """What was written, and how it was checked; stored beside the weights."""

    source: str
    source_identity: str
    skip: str
    num_layers: int
    removed_blocks: tuple[int, ...]
    zeroed_halves: tuple[str, ...]
    check: ExportCheck


def export_checkpoint(
    model: ResolvedModel,
    skip: SkipConfig,
    folder: Path,
    *,
    figures: Iterable[CardFigure] = (),
    notes: Iterable[str] = (),
) -> ExportedCheckpoint:
    """Write `model` without what `skip` leaves out, as a plain Hugging Face checkpoint.

    Skipped blocks are removed and the others numbered anew, their types and windows with them. A
    skipped half stays with an output projection of zeros, which adds exactly nothing to the
    residual stream (norms behind it map zero to zero), but still takes its memory and time. The
    folder appears once the check has passed.

    Args:
        model: The checkpoint to start from.
        skip: What to leave out; not empty.
        folder: Where to write; must not exist.
        figures: What was measured, for the model card.
        notes: Sentences for the model card.

    Raises:
        ConfigError: if `folder` exists, or the skip set does not fit the model or is empty.
        ExportError: if plain `transformers` computes something else from what was written.
    """
    arch, _ = read_architecture(model.folder)
    skip.validate(arch.num_layers)
    if not skip.units:
        raise ConfigError("the skip set is empty: the checkpoint would be a copy, use the original")
    if folder.exists():
        raise ConfigError(f"{folder} exists: give a folder that does not")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        written = Path(temporary) / "checkpoint"
        document = write_sparse(model.folder, skip, written)
        exported = ExportedCheckpoint(
            source=model.reference,
            source_identity=model.identity,
            skip=str(skip),
            num_layers=document["num_hidden_layers"],
            removed_blocks=tuple(u.layer for u in skip.units if u.kind is UnitKind.BLOCK),
            zeroed_halves=tuple(str(u) for u in skip.units if u.kind is not UnitKind.BLOCK),
            check=check_export(model, skip, written),
        )
        (written / MANIFEST_FILE).write_text(exported.model_dump_json(indent=1) + "\n")
        card = model_card(model, exported.model_dump(), figures, notes)
        (written / "README.md").write_text(card)
        written.replace(folder)
    return exported


def write_sparse(source: Path, skip: SkipConfig, folder: Path) -> dict[str, Any]:
    """Write the checkpoint in `source` without what `skip` leaves out into a new `folder`.

    Tokenizer, generation configuration and licence are copied.

    Returns:
        The configuration that was written.
    """
    _, config = read_architecture(source)
    folder.mkdir()
    _copy_descriptions(source, folder)
    tensors = sparse_tensors(source, skip)
    document = sparse_config(config, skip)
    document["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(document, indent=2) + "\n")
    _save(tensors, folder)
    return document


def sparse_tensors(folder: Path, skip: SkipConfig) -> dict[str, Tensor]:
    """Return the tensors of the checkpoint in `folder` that `skip` leaves, by canonical name."""
    tensors = {}
    for path in weight_files(folder):
        with safe_open(path, framework="pt", device="cpu") as file:
            for stored in file.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                canonical = canonical_name(stored)
                name = _new_name(canonical, skip) if is_read(canonical) else None
                if name is not None:
                    tensor = file.get_tensor(stored)
                    is_silent = _writes_skipped_half(canonical, skip)
                    tensors[name] = zeros_like(tensor) if is_silent else tensor
    return tensors


def sparse_config(config: Any, skip: SkipConfig) -> dict[str, Any]:
    """Return the fields of a `transformers` text configuration after `skip`."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    document: dict[str, Any] = config.to_dict()
    kept = [layer for layer in range(config.num_hidden_layers) if not _is_gone(layer, skip)]
    document["num_hidden_layers"] = len(kept)
    if types := document.get("layer_types"):
        document["layer_types"] = [types[layer] for layer in kept]
    for name in _NUMBERED_RULES:
        document.pop(name, None)
    document["architectures"] = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    document.pop("_name_or_path", None)
    return document


def _is_gone(layer: int, skip: SkipConfig) -> bool:
    return skip.skips_attention(layer) and skip.skips_mlp(layer)


def _new_name(name: str, skip: SkipConfig) -> str | None:
    """Return the name of a tensor after `skip`, or None where its block is gone."""
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None:
        return name
    layer = int(match["layer"])
    if _is_gone(layer, skip):
        return None
    before = sum(_is_gone(earlier, skip) for earlier in range(layer))
    return f"model.layers.{layer - before}.{match['rest']}"


def _writes_skipped_half(name: str, skip: SkipConfig) -> bool:
    """Return whether a tensor is (the bias of) the output projection of a skipped half."""
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None:
        return False
    layer, rest = int(match["layer"]), match["rest"]
    is_attention = rest.startswith("self_attn.o_proj.") and skip.skips_attention(layer)
    return is_attention or (rest.startswith("mlp.down_proj.") and skip.skips_mlp(layer))


def _copy_descriptions(source: Path, destination: Path) -> None:
    legal = {path for pattern in LEGAL_FILES for path in source.glob(pattern)}
    for path in sorted({*description_files(source), *legal}):
        if path.is_file() and path.name != "config.json":
            shutil.copyfile(path, destination / path.name)


def _save(tensors: dict[str, Tensor], folder: Path) -> None:
    from huggingface_hub import save_torch_state_dict

    save_torch_state_dict(tensors, folder, max_shard_size=_MAX_SHARD, metadata={"format": "pt"})
