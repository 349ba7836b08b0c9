"""Hashes of what an export is made of, and whether it still is that."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field
from safetensors import SafetensorError, safe_open
from torch import Tensor, uint8

from specdec_core.config.base import Record
from specdec_core.errors import ExportError
from specdec_core.models.files import file_sha256

MANIFEST_FILE = "specdec_export.json"
"""What an export says of itself, beside its weights."""


class TensorHash(Record):
    """One tensor of an export."""

    shape: tuple[int, ...]
    dtype: str = Field(description="of torch, such as bfloat16")
    sha256: str = Field(description="of its bytes, row by row")


def hash_tensor(tensor: Tensor) -> TensorHash:
    """Return what identifies a tensor."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return TensorHash(
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        sha256=hashlib.sha256(flat.view(uint8).numpy().tobytes()).hexdigest(),
    )


def hash_tensors(folder: Path) -> dict[str, TensorHash]:
    """Return what identifies every tensor in the safetensors files of `folder`, by name."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():  # noqa: SIM118 - no map
                found[name] = hash_tensor(file.get_tensor(name))
    return found


def hash_files(folder: Path, *, but: str) -> dict[str, str]:
    """Return the hex SHA-256 of every file of `folder` by name, one name left out."""
    return {
        path.name: file_sha256(path)
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != but
    }


def verify_files(folder: Path, hashes: Mapping[str, str]) -> None:
    """Check that files are there and unchanged.

    Raises:
        ExportError: naming the first that is not.
    """
    for name, wanted in hashes.items():
        path = folder / name
        if not path.is_file():
            raise ExportError(f"{folder} lacks {name}: fetch the export anew")
        found = file_sha256(path)
        if found != wanted:
            raise ExportError(
                f"{path} has hash {found[:12]}.., but its manifest says {wanted[:12]}..: it was "
                "damaged or changed, fetch the export anew"
            )


def read_tensors(path: Path, hashes: Mapping[str, TensorHash]) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file after checking each against its manifest.

    Raises:
        ExportError: if the file cannot be read, or a tensor is missing, foreign or changed; names
            it.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no map
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{path} cannot be read ({error}): fetch the export anew") from error
    for what, names in (
        ("lacks", sorted(hashes.keys() - tensors.keys())),
        ("has a foreign", sorted(tensors.keys() - hashes.keys())),
    ):
        if names:
            raise ExportError(f"{path} {what} tensor {names[0]!r}: fetch the export anew")
    for name, tensor in tensors.items():
        if hash_tensor(tensor) != hashes[name]:
            raise ExportError(
                f"tensor {name!r} in {path} is not the one its manifest names: it was damaged or "
                "changed, fetch the export anew"
            )
    return tensors
