"""Reading and judging a learned drafter's checkpoint before anything of it is loaded."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from specdec_core.drafts.specs import DraftManifest, DraftTarget
from specdec_core.errors import ConfigError
from specdec_core.models.files import file_sha256

MANIFEST, WEIGHTS = "config.json", "model.safetensors"


def read_draft_manifest(folder: Path) -> DraftManifest:
    """Return what the checkpoint in `folder` says of itself; its weights are not read.

    Raises:
        ConfigError: if there is none, or it is not one of a learned drafter.
    """
    path = folder / MANIFEST
    try:
        return DraftManifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"there is no learned drafter in {folder} ({error.strerror}): give the folder that "
            "training wrote, with config.json and model.safetensors"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise ConfigError(
            f"{path} does not describe a learned drafter ({where}: {first['msg']}): give the "
            "folder that training wrote, or train with this version"
        ) from error


def verify_draft(folder: Path) -> DraftManifest:
    """Return the manifest after comparing the weight file with its hash.

    Raises:
        ConfigError: as `read_draft_manifest`, or if the weights are missing or were changed.
    """
    manifest = read_draft_manifest(folder)
    try:
        found = file_sha256(folder / WEIGHTS)
    except OSError as error:
        raise ConfigError(
            f"{folder} lacks {WEIGHTS} ({error.strerror}): fetch the checkpoint anew"
        ) from error
    if found != manifest.weights_hash:
        raise ConfigError(
            f"{folder / WEIGHTS} has hash {found[:12]}.., but config.json says "
            f"{manifest.weights_hash[:12]}..: it is damaged or of another checkpoint, fetch both "
            "anew"
        )
    return manifest


def check_kind(manifest: DraftManifest, method: str, folder: str) -> None:
    """Check that a drafter is one of a method.

    Raises:
        ConfigError: if it is of another kind.
    """
    kind = manifest.draft.kind
    if kind != method:
        raise ConfigError(f"{folder} holds a drafter of kind {kind!r}, not {method!r}: use {kind}")


def check_target(manifest: DraftManifest, target: DraftTarget, *, allows_other: bool) -> None:
    """Check that a drafter was trained for this target.

    Args:
        manifest: Of the drafter.
        target: What is decoded.
        allows_other: Whether another target will do if its sizes are the same.

    Raises:
        ConfigError: if sizes or, unless allowed, identities differ.
    """
    own = manifest.target
    sizes = (own.hidden_size, own.vocab_size)
    given = (target.hidden_size, target.vocab_size)
    name = own.reference or own.identity[:12]
    if sizes != given:
        raise ConfigError(
            f"the drafter was trained for {name} with hidden size {sizes[0]} and {sizes[1]} ids, "
            f"but the target {target.reference or target.identity[:12]} has {given[0]} and "
            f"{given[1]}: choose a drafter of this target"
        )
    if own.identity != target.identity and not allows_other:
        raise ConfigError(
            f"the drafter was trained for {name} ({own.identity[:12]}..), but the target is "
            f"{target.reference or 'another'} ({target.identity[:12]}..): choose a drafter of "
            "this target, or say other_target=true to use it all the same"
        )
