"""Reading a checkpoint strictly: every tensor is expected, present, and of the right shape."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from specdec_core.errors import ConfigError

# Tensors a checkpoint may hold that the text decoder does not read.
_IGNORED = re.compile(r"rotary_emb\.inv_freq$|^(model\.)?(vision_tower|multi_modal_projector)\.")


class TensorSource(Protocol):
    """Where the loader takes tensors from, by canonical name."""

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return tensor `name`, which must have `shape`."""
        ...


class Checkpoint:
    """Safetensors files of one folder, as one strict mapping from canonical names to tensors.

    Canonical names are those of a plain causal language model (``model.layers.0...``,
    ``lm_head.weight``); the nested names of multimodal checkpoints are translated.
    """

    def __init__(self, folder: Path, *, dtype: torch.dtype, device: torch.device) -> None:
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(
                f"{folder} has no .safetensors file: convert the checkpoint to safetensors "
                "(save_pretrained of transformers does)"
            )
        self._folder, self._dtype, self._device = folder, dtype, device
        self._stack = ExitStack()
        self._owner = {}
        for path in files:
            handle = self._stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            for name in handle.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                self._owner[_canonical(name)] = (handle, name)
        self._unread = {name for name in self._owner if not _IGNORED.search(name)}

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

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

    def refuse_unread(self, besides: Collection[str] = ()) -> None:
        """Check that every tensor was read, `besides` those that may stay.

        Raises:
            ConfigError: naming tensors that the architecture does not know.
        """
        unread = sorted(self._unread - set(besides))
        if unread:
            some = ", ".join(unread[:3])
            raise ConfigError(
                f"{self._folder} holds {len(unread)} tensors that its architecture does not "
                f"know ({some}, ..): a checkpoint of another model type or with adapters; merge "
                "adapters before loading"
            )


def _canonical(name: str) -> str:
    for prefix in ("model.language_model.", "language_model.model."):
        if name.startswith(prefix):
            return "model." + name.removeprefix(prefix)
    return name.removeprefix("language_model.")
