"""Reading a checkpoint strictly: every tensor is expected, present, and of the right shape."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec_core.errors import ConfigError
from specdec_core.models.files import weight_files

# Tensors a checkpoint may hold that the text decoder does not read.
_IGNORED = re.compile(r"rotary_emb\.inv_freq$|^(model\.)?(vision_tower|multi_modal_projector)\.")


class TensorSource(Protocol):
    """Where the loader takes tensors from, by canonical name."""

    def __contains__(self, name: str) -> bool:
        """Return whether there is a tensor `name`."""
        ...

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return tensor `name`, which must have `shape`."""
        ...


class Checkpoint:
    """Safetensors files of one folder, as one strict mapping from canonical names to tensors.

    Canonical names are those of a plain causal language model (``model.layers.0...``,
    ``lm_head.weight``); the nested names of multimodal checkpoints are translated.
    """

    def __init__(self, folder: Path, *, dtype: torch.dtype, device: torch.device) -> None:
        self._folder, self._dtype, self._device = folder, dtype, device
        self._stack = ExitStack()
        self._owner = {}
        for path in weight_files(folder):
            try:
                handle = self._stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            except SafetensorError as error:
                raise ConfigError(
                    f"{path} is damaged or only a pointer to the file ({error}): fetch it anew"
                ) from error
            for name in handle.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                self._owner[canonical_name(name)] = (handle, name)
        self._unread = {name for name in self._owner if is_read(name)}

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._owner

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return tensor `name`, which must have `shape`, in the target's dtype and device.

        Raises:
            ConfigError: if the tensor is missing or has another shape.
        """
        if name not in self._owner:
            raise ConfigError(f"{self._folder} lacks tensor {name!r}: the checkpoint is incomplete")
        handle, stored = self._owner[name]
        tensor: Tensor = handle.get_tensor(stored)
        if tuple(tensor.shape) != shape:
            raise ConfigError(
                f"tensor {name!r} in {self._folder} has shape {tuple(tensor.shape)}, but the "
                f"configuration says {shape}: configuration and weights do not belong together"
            )
        self._unread.discard(name)
        return tensor.to(device=self._device, dtype=self._dtype)

    def refuse_unread(self) -> None:
        """Check that every tensor was read.

        Raises:
            ConfigError: naming tensors that the architecture does not know.
        """
        if self._unread:
            some = ", ".join(sorted(self._unread)[:3])
            raise ConfigError(
                f"{self._folder} holds {len(self._unread)} tensors that its architecture does not "
                f"know ({some}, ..): a checkpoint of another model type or with adapters; merge "
                "adapters before loading"
            )


def is_read(name: str) -> bool:
    """Return whether a tensor of this canonical name is part of a text decoder."""
    return not _IGNORED.search(name)


def canonical_name(name: str) -> str:
    """Return the name that a plain causal language model has for a stored tensor."""
    for prefix in ("model.language_model.", "language_model.model."):
        if name.startswith(prefix):
            return "model." + name.removeprefix(prefix)
    return name.removeprefix("language_model.")
