"""Loading a checkpoint: names of types and devices, weights, tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import torch

from specdec_core.config.dtype import ComputeType, DType, compute_type, has_int8_weights
from specdec_core.config.settings import Settings
from specdec_core.drafts.vocabulary_file import read_vocabulary
from specdec_core.errors import ConfigError
from specdec_core.models.architecture import read_architecture
from specdec_core.models.graphs import Capture, cuda_capture
from specdec_core.models.native.build import find_kernels
from specdec_core.models.native.engine import can_run
from specdec_core.models.reference import ResolvedModel
from specdec_core.models.target import Target
from specdec_core.models.weights import Checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_DTYPES: Mapping[ComputeType, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_DEVICE = re.compile(r"cpu|cuda(:(?P<index>[0-9]+))?")


def torch_dtype(name: str) -> torch.dtype:
    """Return the torch dtype that a target of type `name` computes in.

    Raises:
        ConfigError: for a name that is not one of `DType`.
    """
    if name not in get_args(DType):
        raise ConfigError(f"dtype {name!r} is unknown: choose one of {', '.join(get_args(DType))}")
    return _DTYPES[compute_type(cast(DType, name))]


def torch_device(name: str) -> torch.device:
    """Return the torch device called `name`.

    Raises:
        ConfigError: if it is neither the processor nor a CUDA device of this machine.
    """
    match = _DEVICE.fullmatch(name)
    if match is None:
        raise ConfigError(f"device {name!r} is unknown: use cpu, cuda or cuda:n")
    if name != "cpu" and int(match["index"] or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices"
        )
    return torch.device(name)


def load_target(
    model: ResolvedModel,
    *,
    dtype: str,
    device: str,
    settings: Settings | None = None,
    is_draft: bool = False,
) -> Target:
    """Load a resolved model's weights.

    Args:
        model: What `resolve_model` returned.
        dtype: One of `DType`; weights are converted to it, and rounded to 8 bits if it says so.
            That takes less than loading them does, so nothing is cached.
        device: ``cpu``, ``cuda`` or ``cuda:n``.
        settings: Whether own kernels and captured passes may run, and where the former are kept;
            None for those of this process.
        is_draft: Whether it will draft: then a narrowed vocabulary in its folder counts, which it
            does not for a target.

    Raises:
        ConfigError: if weights and configuration do not fit each other, or the tokenizer or the
            device is not there.
        UnsupportedModelError: if the checkpoint uses a feature the engine lacks.
    """
    arch, config = read_architecture(model.folder)
    tokenizer = load_tokenizer(model.folder)
    vocabulary = read_vocabulary(model.folder, arch.vocab_size) if is_draft else None
    kind, place = torch_dtype(dtype), torch_device(device)
    with torch.inference_mode(), Checkpoint(model.folder, dtype=kind, device=place) as tensors:
        target = Target(
            arch,
            config,
            tensors,
            dtype=kind,
            device=place,
            identity=model.identity,
            has_int8_weights=has_int8_weights(dtype),
            kind=model.kind,
            tokenizer=tokenizer,
            # Compiling takes half a minute: only for what they can run.
            kernels=find_kernels(settings) if can_run(arch, kind, place) else None,
            capture=_find_capture(settings, place),
            vocabulary=vocabulary,
        )
        tensors.refuse_unread()
    return target


def _find_capture(settings: Settings | None, device: torch.device) -> Capture | None:
    """Return what captures passes on `device`; None where nothing can or it is turned off."""
    is_wanted = (settings or Settings()).native
    return cuda_capture(device) if is_wanted and device.type == "cuda" else None


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the checkpoint in `folder`.

    Raises:
        ConfigError: if it cannot be loaded.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"{folder}: its tokenizer cannot be loaded ({error}): put the checkpoint's tokenizer "
            "files beside its weights"
        ) from error
