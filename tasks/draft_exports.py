"""A stored checkpoint of a draft, written for other programs with what was measured of it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from db.training import DraftCheckpoint
from specdec_core.config.settings import Settings
from specdec_core.drafts.provenance_file import read_provenance
from specdec_core.drafts.specs import Provenance
from specdec_core.errors import ConfigError, ExportError, StoreError
from specdec_core.export.card import CardFigure
from tasks.draft_report import DraftCell, DraftEvaluation
from tasks.run_files import make_folder
from tasks.runtime import LogLine
from tasks.training_keys import folder_hash

if TYPE_CHECKING:
    from specdec_core.export.assistant import AssistantExport
    from specdec_core.export.eagle_layouts import LayoutExport
    from specdec_core.models.reference import ResolvedModel

logger = logging.getLogger(__name__)

ASSISTANT_FOLDER = "transformers"
"""Where the assistant model is below the folder of an export."""


def export_draft(
    checkpoint: DraftCheckpoint,
    evaluation: DraftEvaluation | None,
    folder: Path,
    settings: Settings,
    log: LogLine = logger.info,
) -> tuple[Path, ...]:
    """Write a checkpoint in every layout of its kind below `folder`.

    An independent model becomes an assistant model of `transformers`; an EAGLE head is written
    under the names of two serving engines. No engine has a layout of Medusa heads that they fit:
    nothing is written for them. What is there already is left as it is.

    Args:
        checkpoint: What to write.
        evaluation: Of it, as stored; None if it was not evaluated.
        folder: Where its layouts are.
        settings: Where models are.
        log: Takes lines for the user.

    Returns:
        The folders of its layouts.

    Raises:
        ConfigError: if the checkpoint is not validated, its files are not those that training left
            any more, `folder` holds another draft or cannot be written to, or the files do not fit
            a layout.
        ExportError: if realised acceptance was not what training expects, or what was written
            computes something else.
    """
    from specdec_core.models.reference import resolve_model

    if evaluation is not None:
        evaluation.require_agreement()
    if checkpoint.state != "validated":
        raise ConfigError(
            f"checkpoint {checkpoint.id} is {checkpoint.state} "
            f"({checkpoint.reason or 'not evaluated'}): only validated ones are exported"
        )
    target = resolve_model(checkpoint.target, settings.cache_dir, log)
    if target.identity != checkpoint.target_identity:
        raise ConfigError(
            f"checkpoint {checkpoint.id} is of target {checkpoint.target_identity[:12]}.., but "
            f"{checkpoint.target} has {target.identity[:12]}.. here: get the files it was made for"
        )
    told = _Told(
        [] if evaluation is None else card_figures(evaluation), _notes(checkpoint, evaluation)
    )
    if checkpoint.draft_kind == "medusa":
        log("Medusa heads have no layout of other programs: not exported")
        return ()
    if checkpoint.draft_kind == "eagle":
        return _write_eagle(checkpoint, target, folder, told, log)
    return (_write_assistant(checkpoint, target, folder / ASSISTANT_FOLDER, told, settings, log),)


def is_whole(folder: Path) -> bool:
    """True if an export's files are there, and those with the hashes in its manifest."""
    from specdec_core.export.assistant import verify_assistant
    from specdec_core.export.eagle_layouts import verify_eagle

    verify = verify_assistant if folder.name == ASSISTANT_FOLDER else verify_eagle
    try:
        verify(folder)
    except (ExportError, OSError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Told:
    """What a model card says of the measurements."""

    figures: list[CardFigure]
    notes: list[str]


def _write_eagle(
    checkpoint: DraftCheckpoint, target: ResolvedModel, folder: Path, told: _Told, log: LogLine
) -> tuple[Path, ...]:
    from specdec_core.drafts.manifest import verify_draft
    from specdec_core.export.eagle_layouts import export_eagle, verify_eagle
    from specdec_core.export.eagle_names import LAYOUTS

    source = _own_files(checkpoint)
    identity = verify_draft(source).identity
    folders = {layout: folder / layout for layout in LAYOUTS}
    missing = {layout: place for layout, place in folders.items() if not place.exists()}
    for place in folders.values():
        if place.exists():
            _check_same(place, verify_eagle(place), identity, checkpoint)
    for layout, place in missing.items():
        with _written_into(folder):
            export_eagle(
                source,
                target,
                layout,
                place,
                figures=told.figures,
                notes=told.notes,
                run_id=checkpoint.run_id,
                training_key=checkpoint.training_key,
            )
        log(f"EAGLE head under the names of {layout}: {place}")
    return tuple(folders.values())


def _write_assistant(
    checkpoint: DraftCheckpoint,
    target: ResolvedModel,
    place: Path,
    told: _Told,
    settings: Settings,
    log: LogLine,
) -> Path:
    from specdec_core.export.assistant import export_assistant, verify_assistant
    from specdec_core.models.reference import resolve_model

    source = _own_files(checkpoint)
    draft = resolve_model(f"path:{source}", settings.cache_dir, log)
    if place.exists():
        _check_same(place, verify_assistant(place), draft.identity, checkpoint)
        return place
    # What training wrote says more than the store's row: the domains that the hash is of.
    origin = read_provenance(source) or Provenance(
        template_hash=checkpoint.template_hash,
        data_hash=checkpoint.data_hash,
        training={"loss": checkpoint.loss, "seed": checkpoint.seed, "draft": checkpoint.draft},
    )
    with _written_into(place.parent):
        export_assistant(
            draft,
            target,
            place,
            provenance=origin,
            figures=told.figures,
            notes=told.notes,
            run_id=checkpoint.run_id,
            training_key=checkpoint.training_key,
        )
    log(f"assistant model: {place}")
    return place


@contextlib.contextmanager
def _written_into(folder: Path) -> Iterator[None]:
    """Make a folder, and say in words why nothing can be written into it.

    Raises:
        ConfigError: if it cannot be made or written to.
    """
    make_folder(folder)
    try:
        yield
    except (OSError, StoreError) as error:
        raise ConfigError(
            f"the export cannot be written into {folder} ({error}): name a folder that you may "
            "write to, with room for it"
        ) from error


def _check_same(
    place: Path, found: AssistantExport | LayoutExport, identity: str, checkpoint: DraftCheckpoint
) -> None:
    """Check that what a folder holds was exported from the files of a checkpoint.

    Raises:
        ConfigError: if it was not.
    """
    if (found.source_identity, found.target_identity) != (identity, checkpoint.target_identity):
        raise ConfigError(
            f"{place} holds the export of another draft ({found.source_identity[:12]}.. for "
            f"{found.target}), not of checkpoint {checkpoint.id} ({identity[:12]}..): name another "
            f"folder, or remove it with `rm -r {place}`"
        )


def _own_files(checkpoint: DraftCheckpoint) -> Path:
    """Return the folder of a checkpoint after checking that it still holds its files.

    Raises:
        ConfigError: if it does not.
    """
    found = folder_hash(Path(checkpoint.folder))
    if found != checkpoint.content_hash:
        raise ConfigError(
            f"{checkpoint.folder} has content {found[:12]}.., but checkpoint {checkpoint.id} is "
            f"{checkpoint.content_hash[:12]}..: bring its files back, or train it again"
        )
    return Path(checkpoint.folder)


def card_figures(evaluation: DraftEvaluation) -> list[CardFigure]:
    """Return what was measured of a draft as rows of a model card."""
    return [
        figure for cell in evaluation.cells if cell.figures is not None for figure in _rows(cell)
    ]


def _rows(cell: DraftCell) -> list[CardFigure]:
    assert cell.figures is not None
    where = f"{cell.domain}, {cell.shape}, temperature {cell.temperature:g}"
    rows = []
    if cell.mean_accepted_tokens is not None:
        tokens = CardFigure(
            f"{where}: tokens per step", "1", f"{cell.mean_accepted_tokens:.3f}", ""
        )
        rows.append(tokens)
    speedup = cell.speedup
    if speedup is not None:
        rate = f"{cell.figures.tokens_per_s:.1f}"
        change = f"x{speedup.estimate:.3f} [{speedup.low:.3f}, {speedup.high:.3f}]"
        rows.append(CardFigure(f"{where}: tokens per second", "", rate, change))
    return rows


def _notes(checkpoint: DraftCheckpoint, evaluation: DraftEvaluation | None) -> list[str]:
    notes = [f"Trained with {checkpoint.loss}, seed {checkpoint.seed}: {checkpoint.reason or '-'}."]
    if evaluation is not None and evaluation.cells:
        config = evaluation.config
        notes.append(
            f"Measured at batch 1 on {config.num_items} prompts per domain, outputs of at most "
            f"{config.max_new_tokens} tokens, paired with plain decoding; all verification rules "
            "leave the target's output or its distribution as it is."
        )
    return notes
