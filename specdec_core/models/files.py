"""Which files of a folder make a checkpoint, what they hash to, and how files are written."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from specdec_core.errors import ConfigError, StoreError

_WEIGHTS = "model.safetensors"

# Besides the weights: what decides how text becomes tokens, how they are run, and when they end.
_DESCRIPTION = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.*",
    "draft_vocab.json",
)


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files that hold the weights of the checkpoint in `folder`.

    That is the standard file, else the shards of its index, else every such file. Some folders
    hold the weights a second time in a format of their own (``consolidated.safetensors``).

    Raises:
        ConfigError: if there is no such file, or a shard is missing.
    """
    index = folder / f"{_WEIGHTS}.index.json"
    if (folder / _WEIGHTS).exists():
        return [folder / _WEIGHTS]
    if index.exists():
        return _shards(index)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(
            f"{folder} has no .safetensors file: convert the checkpoint to safetensors "
            "(save_pretrained of transformers does)"
        )
    return files


def description_files(folder: Path) -> list[Path]:
    """Return the files beside the weights that say how the model in `folder` is run."""
    return sorted({path for pattern in _DESCRIPTION for path in folder.glob(pattern)})


def content_identity(folder: Path, cache_dir: Path) -> str:
    """Hex SHA-256 over names and contents of the files that make the model in `folder`.

    Raises:
        ConfigError: if its weights are not there.
    """
    digest = hashlib.sha256()
    for path in sorted({*weight_files(folder), *description_files(folder)}):
        digest.update(f"{path.name}\0{_remembered_sha256(path, cache_dir)}\n".encode())
    return digest.hexdigest()


def tokenizer_identity(folder: Path, cache_dir: Path) -> str:
    """Hex SHA-256 over the files that decide how the model in `folder` turns text into ids.

    A ``tokenizer.json`` decides alone; without one all files of a slow tokenizer count.
    """
    fast = folder / "tokenizer.json"
    parts = ("tokenizer*", "vocab.json", "merges.txt", "added_tokens.json")
    paths = [fast] if fast.exists() else sorted({p for part in parts for p in folder.glob(part)})
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name}\0{_remembered_sha256(path, cache_dir)}\n".encode())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, text: str) -> None:
    """Write a file by temporary name and rename: whoever reads it finds it whole or not at all.

    Raises:
        StoreError: if it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what to do where `path` cannot be written.

    Raises:
        StoreError: for what the file system or the writer of weights refuses.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise StoreError(
            f"{path} cannot be written ({error}): free space, or see that you may write there, and "
            "run the same command again"
        ) from error


def _shards(index: Path) -> list[Path]:
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{index} is not an index of shards ({error!r}): fetch it anew"
        ) from error
    missing = [name for name in names if not (index.parent / name).exists()]
    if missing:
        raise ConfigError(
            f"{index.parent} lacks {len(missing)} of {len(names)} shards ({missing[0]}, ..): fetch "
            "the rest of the checkpoint"
        )
    return [index.parent / name for name in names]


def _remembered_sha256(path: Path, cache_dir: Path) -> str:
    """SHA-256 of a file, remembered by real path, size and modification time."""
    stat = path.stat()
    name = f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    memo = cache_dir / "hashes" / hashlib.sha256(name.encode()).hexdigest()
    if memo.exists():
        return memo.read_text()
    value = file_sha256(path)
    memo.parent.mkdir(parents=True, exist_ok=True)
    temporary = memo.with_suffix(f".{os.getpid()}")
    temporary.write_text(value)
    temporary.replace(memo)
    return value
