"""Datastores on disk: an indexed text, and a manifest that says of what and for which tokenizer."""

from __future__ import annotations

import hashlib
import os
import shutil
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError
from specdec_core.retrieval.indexed_text import SUFFIX_DTYPE, TOKEN_DTYPE, IndexedText

_MANIFEST, _TOKENS, _SUFFIXES = "manifest.json", "tokens.npy", "suffixes.npy"


class DatastoreSource(Record):
    """One thing a datastore was made from."""

    name: str = Field(description="path or domain as it was given")
    kind: Literal["suite", "text"]
    content_hash: str = Field(description="of a suite its content hash, of a text its SHA-256")
    num_documents: int = Field(ge=1, description="texts taken from it")
    num_tokens: int = Field(ge=0, description="their tokens, separators not counted")
    prompt_hashes: tuple[str, ...] = Field(
        (), description="of the prompts of a suite; what is asked of these has been seen"
    )


class DatastoreManifest(Record):
    """What a datastore holds."""

    format_version: Literal[1] = 1
    model: str = Field(description="reference of the model whose tokenizer was used")
    tokenizer_identity: str = Field(description="content hash of that tokenizer's files")
    vocab_size: int = Field(ge=1, description="ids of the tokenizer")
    length: int = Field(ge=2, description="tokens, one separator per document included")
    tokens_hash: str = Field(description="SHA-256 of the tokens: the identity of the content")
    suffixes_hash: str = Field(description="SHA-256 of the suffix array")
    sources: tuple[DatastoreSource, ...] = Field(min_length=1)

    @property
    def prompt_hashes(self) -> frozenset[str]:
        """Hashes of all prompts of suites that went into it; see `prompt_hash`."""
        return frozenset(chain.from_iterable(source.prompt_hashes for source in self.sources))

    @property
    def num_tokens(self) -> int:
        """Tokens, separators not counted."""
        return sum(source.num_tokens for source in self.sources)


def prompt_hash(prompt: str) -> str:
    """First 64 bits of the SHA-256 of a prompt, in hex: enough to know it again."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:16]


def write_datastore(
    folder: Path,
    text: IndexedText,
    sources: tuple[DatastoreSource, ...],
    *,
    model: str,
    tokenizer_identity: str,
    vocab_size: int,
) -> DatastoreManifest:
    """Write `text` to `folder`, which appears whole or not at all, and return its manifest.

    Raises:
        ConfigError: if there is something at `folder` already.
    """
    check_is_free(folder)
    manifest = DatastoreManifest(
        model=model,
        tokenizer_identity=tokenizer_identity,
        vocab_size=vocab_size,
        length=len(text),
        tokens_hash=_digest(text.tokens),
        suffixes_hash=_digest(text.suffixes),
        sources=sources,
    )
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir(parents=True)
    try:
        np.save(temporary / _TOKENS, text.tokens)
        np.save(temporary / _SUFFIXES, text.suffixes)
        (temporary / _MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return manifest


def check_is_free(folder: Path) -> None:
    """Check that a datastore can be written to `folder`.

    Raises:
        ConfigError: if there is something already.
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists already: remove it or name another folder")


def read_manifest(folder: Path) -> DatastoreManifest:
    """Return what the datastore in `folder` says of itself.

    Raises:
        ConfigError: if there is none, or it cannot be read.
    """
    try:
        return DatastoreManifest.model_validate_json((folder / _MANIFEST).read_bytes())
    except OSError as error:
        raise ConfigError(
            f"there is no datastore in {folder} ({error.strerror}): build one with "
            "'specdec datastore build'"
        ) from error
    except ValidationError as error:
        raise _broken(
            folder, f"its manifest is not valid ({error.error_count()} faults)"
        ) from error


def open_datastore(folder: Path) -> tuple[DatastoreManifest, IndexedText]:
    """Return the datastore in `folder`, memory-mapped; its content is not read.

    Raises:
        ConfigError: if there is none, or its files are not of the form they should have.
    """
    manifest = read_manifest(folder)
    tokens = _map(folder, _TOKENS, TOKEN_DTYPE, manifest.length)
    suffixes = _map(folder, _SUFFIXES, SUFFIX_DTYPE, manifest.length)
    return manifest, IndexedText(tokens, suffixes)


def verify_datastore(folder: Path) -> DatastoreManifest:
    """Return the manifest of the datastore in `folder` after reading and checking every byte.

    Raises:
        ConfigError: if there is none, or it is not what it was when it was written.
    """
    manifest, text = open_datastore(folder)
    parts = ((text.tokens, manifest.tokens_hash), (text.suffixes, manifest.suffixes_hash))
    if any(_digest(array) != wanted for array, wanted in parts):
        raise _broken(folder, "its content has changed since it was written")
    return manifest


def _map(folder: Path, name: str, dtype: str, length: int) -> npt.NDArray[np.uint32]:
    try:
        array: npt.NDArray[np.uint32] = np.load(folder / name, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _broken(folder, f"{name} cannot be read ({error})") from error
    if array.dtype != np.dtype(dtype) or array.shape != (length,):
        raise _broken(folder, f"{name} holds {array.dtype} {array.shape}, not {dtype} ({length},)")
    return array


def _digest(array: npt.NDArray[np.uint32]) -> str:
    return hashlib.sha256(array.view(np.uint8).data).hexdigest()


def _broken(folder: Path, reason: str) -> ConfigError:
    return ConfigError(f"datastore {folder} is damaged: {reason}; build it again")
