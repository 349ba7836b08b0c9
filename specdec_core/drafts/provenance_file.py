"""Where a draft's weights come from, as its folder says it, whatever kind of draft it is."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from specdec_core.drafts.specs import DraftManifest, Provenance
from specdec_core.errors import ConfigError
from specdec_core.models.files import write_whole

PROVENANCE_FILE = "specdec_training.json"
PRUNED_FILE = "specdec_pruned.json"
"""What a pruned draft was cut from, beside its weights."""


def write_provenance(folder: Path, provenance: Provenance) -> None:
    """Write where an independent draft model comes from beside its weights.

    It is not part of what identifies the checkpoint. Learned drafters say it in their manifest.
    """
    write_whole(folder / PROVENANCE_FILE, provenance.model_dump_json(indent=1) + "\n")


def read_provenance(folder: Path) -> Provenance | None:
    """Return where the draft in `folder` comes from; None where nothing says so.

    Raises:
        ConfigError: if what says so cannot be read.
    """
    path = folder / PROVENANCE_FILE
    if not path.exists():
        try:
            manifest = DraftManifest.model_validate_json((folder / "config.json").read_bytes())
        except (OSError, ValidationError):
            return None  # an independent model without a note
        return manifest.provenance
    try:
        return Provenance.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(
            f"{path} does not say where the draft comes from ({error}): remove it, or export the "
            "draft anew"
        ) from error
