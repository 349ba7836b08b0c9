"""EAGLE heads under the names that serving engines read.

Names and configuration fields are those of the projects' sources, looked up in November 2026:

- ``speculators``: vllm-project/speculators, `models/eagle3` (033c87f2) and the converter of EAGLE-1
  heads in `convert/eagle` (035f9e0c); vLLM's `models/llama_eagle3.py` (00bd1493) and
  `transformers_utils/configs/speculators`.
- ``sglang``: sgl-project/sglang, `models/llama_eagle3.py` (03d5a777) and `models/llama_eagle.py`
  (034b3be8), which read what SafeAILab/EAGLE publishes.

No server of either was run here on what this writes. Both read Llama layers only. Embedding and,
for version 1, language-model head are the target's and left out, as both take them from there.
vLLM's own EAGLE-1 has no bias behind its first map; ours has one, which the speculators
configuration says (``fusion_bias``).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, ValidationError
from safetensors.torch import save_file
from torch import Tensor

from specdec_core.config.base import Record
from specdec_core.drafts.checkpoint import LearnedDraft, load_draft
from specdec_core.drafts.eagle import EagleHead
from specdec_core.drafts.manifest import check_target, verify_draft
from specdec_core.drafts.specs import DraftManifest, DraftTarget, EagleSpec, Provenance
from specdec_core.errors import ConfigError, ExportError
from specdec_core.export.card import CardFigure, figure_table, front_matter, licence, trained_on
from specdec_core.export.eagle_names import Layout, served_config, served_name
from specdec_core.export.facts import DraftFacts, SharedPart
from specdec_core.export.files import (
    MANIFEST_FILE,
    TensorHash,
    hash_files,
    hash_tensor,
    read_tensors,
    verify_files,
)
from specdec_core.models.architecture import read_architecture
from specdec_core.models.reference import ResolvedModel

_WEIGHTS = "model.safetensors"


class LayoutExport(Record):
    """What was written; stored beside the weights."""

    layout: Layout
    version: Literal[1, 3]
    source_identity: str = Field(description="of the head's files")
    target: str = Field(description="reference of the model it drafts for")
    target_identity: str
    taps: tuple[int, ...] = Field(description="hidden states, as `specdec_core.models.taps`")
    provenance: Provenance
    facts: DraftFacts | None = Field(None, description="None in exports that older versions wrote")
    tensors: dict[str, TensorHash]
    files: dict[str, str] = Field(description="SHA-256 by name; weights and this file left out")


def export_eagle(
    source: Path,
    target: ResolvedModel,
    layout: Layout,
    folder: Path,
    *,
    figures: Iterable[CardFigure] = (),
    notes: Iterable[str] = (),
    run_id: str = "",
    training_key: str = "",
) -> LayoutExport:
    """Write a trained EAGLE head under the names of a serving engine, in its own type.

    Args:
        source: Folder that training left.
        target: The model it drafts for.
        layout: Whose names.
        folder: Where to write; must not exist. It appears once everything is in it.
        figures: What was measured: name, without and with the head, change.
        notes: Sentences for the model card.
        run_id: The training run that made it, if a store knows one.
        training_key: Content key of that training.

    Raises:
        ConfigError: if `folder` exists, the head is no EAGLE head, is for another target, or has
            parts that these engines lack.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists: give a folder that does not")
    manifest = verify_draft(source)
    arch, config = read_architecture(target.folder)
    facts = DraftTarget.of(target.identity, arch, target.reference)
    check_target(manifest, facts, allows_other=False)
    spec = manifest.draft
    if not isinstance(spec, EagleSpec):
        raise ConfigError(
            f"{source} holds a drafter of kind {spec.kind!r}: only EAGLE heads have these layouts"
        )
    document = served_config(spec, layout, config, target.reference, arch.embed_scale)
    tensors = _served_tensors(_load(source), layout)
    kind = tensors[served_name("fc.weight", spec.version, layout)].dtype
    document["torch_dtype"] = str(kind).removeprefix("torch.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        written = Path(temporary) / "head"
        written.mkdir()
        save_file(tensors, written / _WEIGHTS, metadata={"format": "pt"})
        (written / "config.json").write_text(json.dumps(document, indent=2) + "\n")
        card = _card(manifest, target, layout, list(figures), notes)
        (written / "README.md").write_text(card)
        files = hash_files(written, but=MANIFEST_FILE)
        del files[_WEIGHTS]
        exported = LayoutExport(
            layout=layout,
            version=spec.version,
            source_identity=manifest.identity,
            target=target.reference,
            target_identity=target.identity,
            taps=spec.taps,
            provenance=manifest.provenance,
            facts=DraftFacts(
                vocab_size=manifest.target.vocab_size,
                num_drafted_ids=spec.draft_vocab_size or manifest.target.vocab_size,
                shared=_shared(spec),
                run_id=run_id,
                training_key=training_key,
            ),
            tensors={name: hash_tensor(tensor) for name, tensor in tensors.items()},
            files=files,
        )
        (written / MANIFEST_FILE).write_text(exported.model_dump_json(indent=1) + "\n")
        verify_eagle(written)
        written.replace(folder)
    return exported


def verify_eagle(folder: Path) -> LayoutExport:
    """Return the manifest of an exported head after checking every tensor and file.

    Raises:
        ExportError: if it has no manifest, or something is missing or changed; names it.
    """
    try:
        exported = LayoutExport.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError) as error:
        raise ExportError(f"{folder} has no readable {MANIFEST_FILE}: export it anew") from error
    read_tensors(folder / _WEIGHTS, exported.tensors)
    verify_files(folder, exported.files)
    return exported


def _shared(spec: EagleSpec) -> tuple[SharedPart, ...]:
    """Return what engines take from the target: version 3 alone has a head of its own."""
    return ("embedding", "head") if spec.version == 1 else ("embedding",)


def _load(source: Path) -> LearnedDraft:
    """Return the head in the type it was stored in."""
    from safetensors import safe_open

    with safe_open(source / _WEIGHTS, framework="pt", device="cpu") as file:
        kind = file.get_tensor("fc.weight").dtype
    return load_draft(source, dtype=kind, device=torch.device("cpu"))


def _served_tensors(draft: LearnedDraft, layout: Layout) -> dict[str, Tensor]:
    """Return the head's tensors by the names of a layout, with the map of its vocabulary.

    ``d2t`` holds how much larger the target's id is than the draft's, ``t2d`` which of the target's
    ids the draft has.
    """
    head = draft.module
    assert isinstance(head, EagleHead)
    tensors = {
        served_name(name, head.spec.version, layout): tensor.detach().contiguous()
        for name, tensor in head.state_dict().items()
    }
    if draft.vocabulary is not None:
        known = torch.zeros(draft.target.vocab_size, dtype=torch.bool)
        known[draft.vocabulary.target_ids] = True
        tensors |= {"d2t": draft.vocabulary.offsets, "t2d": known}
    return tensors


def _card(
    manifest: DraftManifest,
    target: ResolvedModel,
    layout: Layout,
    figures: list[CardFigure],
    notes: Iterable[str],
) -> str:
    spec = manifest.draft
    assert isinstance(spec, EagleSpec)
    origin = manifest.provenance
    lines = [
        *front_matter(target, "speculative-decoding"),
        f"# EAGLE-{spec.version} head for {target.reference}",
        "",
        f"Made by specdec-lab for `{target.reference}` (content {target.identity[:12]}), under the "
        f"names of {layout}. It was not run by a server of that project. Embedding"
        f"{' and language-model head are' if 'head' in _shared(spec) else ' is'} the target's.",
        "",
        trained_on(origin),
        "",
        *figure_table(figures, ("without", "with it")),
        *notes,
        *licence(target),
    ]
    return "\n".join(lines)
