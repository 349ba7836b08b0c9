"""An independent draft model as a folder that `transformers` takes as assistant model."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from specdec_core.config.base import Record
from specdec_core.drafts.provenance_file import (
    PROVENANCE_FILE,
    PRUNED_FILE,
    read_provenance,
    write_provenance,
)
from specdec_core.drafts.specs import Provenance
from specdec_core.drafts.vocabulary_file import VOCABULARY_FILE, read_vocabulary
from specdec_core.errors import ConfigError, ExportError
from specdec_core.export.card import CardFigure, figure_table, front_matter, licence, trained_on
from specdec_core.export.check import ExportCheck, check_export
from specdec_core.export.checkpoint import LEGAL_FILES
from specdec_core.export.facts import DraftFacts
from specdec_core.export.files import (
    MANIFEST_FILE,
    TensorHash,
    hash_files,
    hash_tensors,
    verify_files,
)
from specdec_core.models.architecture import read_architecture
from specdec_core.models.files import description_files
from specdec_core.models.loading import load_tokenizer
from specdec_core.models.reference import ResolvedModel
from specdec_core.models.tokenizers import check_same_tokenizer
from specdec_core.skip import SkipConfig


class AssistantExport(Record):
    """What was written, and how it was checked; stored beside the weights."""

    layout: Literal["transformers-assistant"] = "transformers-assistant"
    source_identity: str = Field(description="of the draft's files")
    target: str = Field(description="reference of the model it drafts for")
    target_identity: str
    num_assistant_tokens: int = Field(description="draft tokens per step, unless told otherwise")
    provenance: Provenance
    facts: DraftFacts | None = Field(None, description="None in exports that older versions wrote")
    check: ExportCheck
    tensors: dict[str, TensorHash] = Field(
        default_factory=dict, description="none in exports that older versions wrote"
    )
    files: dict[str, str] = Field(description="SHA-256 by name; this file left out")


def export_assistant(
    draft: ResolvedModel,
    target: ResolvedModel,
    folder: Path,
    *,
    num_assistant_tokens: int = 7,
    provenance: Provenance | None = None,
    figures: Iterable[CardFigure] = (),
    notes: Iterable[str] = (),
    run_id: str = "",
    training_key: str = "",
) -> AssistantExport:
    """Write a draft model for ``target.generate(assistant_model=draft)``.

    A map of a narrowed vocabulary goes along; `transformers` does not read it and drafts with the
    whole head. Its drafting is told to offer `num_assistant_tokens` in every step, which it would
    otherwise change as it goes. The folder appears once the check has passed.

    Args:
        draft: What training left.
        target: The model it drafts for.
        folder: Where to write; must not exist.
        num_assistant_tokens: Draft tokens per step.
        provenance: Where its weights come from; None for what its folder says.
        figures: What was measured: name, without and with the draft, change.
        notes: Sentences for the model card.
        run_id: The training run that made it, if a store knows one.
        training_key: Content key of that training.

    Raises:
        ConfigError: if `folder` exists, or the draft has another tokenizer than the target or a
            head with more or fewer rows.
        ExportError: if what was written computes something else.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists: give a folder that does not")
    names = (target.reference, draft.reference)
    check_same_tokenizer(load_tokenizer(target.folder), load_tokenizer(draft.folder), names=names)
    origin = provenance or read_provenance(draft.folder) or Provenance()
    vocab_size, wanted = (read_architecture(m.folder)[0].vocab_size for m in (draft, target))
    if vocab_size != wanted:
        raise ConfigError(
            f"{draft.reference} has {vocab_size} rows in its head and {target.reference} {wanted}: "
            "`transformers` takes that for other tokenizers, so the draft serves here, but not as "
            "an assistant model there"
        )
    narrowed = read_vocabulary(draft.folder, vocab_size)
    facts = DraftFacts(
        vocab_size=vocab_size,
        num_drafted_ids=vocab_size if narrowed is None else len(narrowed),
        shared=(),  # it is a whole model
        run_id=run_id,
        training_key=training_key,
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as temporary:
        written = Path(temporary) / "draft"
        written.mkdir()
        _copy(draft.folder, written)
        _tell_generation(written, num_assistant_tokens)
        write_provenance(written, origin)
        check = check_export(draft, SkipConfig(), written)
        card = _card(draft, target, origin, check, list(figures), notes)
        (written / "README.md").write_text(card)
        exported = AssistantExport(
            source_identity=draft.identity,
            target=target.reference,
            target_identity=target.identity,
            num_assistant_tokens=num_assistant_tokens,
            provenance=origin,
            facts=facts,
            check=check,
            tensors=hash_tensors(written),
            files=hash_files(written, but=MANIFEST_FILE),
        )
        (written / MANIFEST_FILE).write_text(exported.model_dump_json(indent=1) + "\n")
        written.replace(folder)
    return exported


def verify_assistant(folder: Path) -> AssistantExport:
    """Return the manifest of an exported draft model after checking every file.

    Raises:
        ExportError: if it has no manifest, or a file is missing or changed.
    """
    try:
        exported = AssistantExport.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError) as error:
        raise ExportError(f"{folder} has no readable {MANIFEST_FILE}: export it anew") from error
    verify_files(folder, exported.files)
    return exported


def _copy(source: Path, folder: Path) -> None:
    own = (VOCABULARY_FILE, PROVENANCE_FILE, PRUNED_FILE)
    patterns = ("*.safetensors", "*.safetensors.index.json", *own, *LEGAL_FILES)
    found = {path for pattern in patterns for path in source.glob(pattern)}
    for path in sorted(found | set(description_files(source))):
        shutil.copyfile(path, folder / path.name)


def _tell_generation(folder: Path, num_tokens: int) -> None:
    """Have `transformers` draft a constant number of tokens, whatever the draft thinks of them."""
    path = folder / "generation_config.json"
    document = json.loads(path.read_text()) if path.exists() else {}
    document |= {
        "num_assistant_tokens": num_tokens,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def _card(
    draft: ResolvedModel,
    target: ResolvedModel,
    origin: Provenance,
    check: ExportCheck,
    figures: list[CardFigure],
    notes: Iterable[str],
) -> str:
    is_narrowed = (draft.folder / VOCABULARY_FILE).exists()
    narrowed = [
        "",
        f"`{VOCABULARY_FILE}` lists the ids it drafts when specdec-lab runs it, which computes "
        "only these rows of its head; other programs use the whole head.",
    ]
    lines = [
        *front_matter(target, "speculative-decoding"),
        f"# Draft model for {target.reference}",
        "",
        f"Made by specdec-lab for `{target.reference}` (content {target.identity[:12]}), whose "
        "tokenizer it shares: a draft model for speculative decoding, not for use on its own.",
        "",
        "```python",
        "model.generate(**inputs, assistant_model=draft)",
        "```",
        *(narrowed if is_narrowed else []),
        "",
        trained_on(origin),
        "",
        "Checked when it was written, in float32: its logits in `transformers` differ by at most "
        f"{check.largest_difference:.2g} of {check.largest_logit:.3g} from those of the engine.",
        "",
        *figure_table(figures, ("without", "with it")),
        *notes,
        *licence(target),
    ]
    return "\n".join(lines)
