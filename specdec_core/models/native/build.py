"""Compiling the kernels where they help, once per version of their source, and loading them."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from ctypes import POINTER, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from specdec_core.config.settings import Settings
from specdec_core.models.native import structures

logger = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_FLAGS = (
    "-std=c++20",
    "-O3",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-w",
    *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "bf16")),
    "-mfma",
)
_TIMEOUT_S = 300


class Kernels:
    """The functions of one compiled library."""

    def __init__(self, path: Path) -> None:
        # Resolved against the OpenMP runtime torch has loaded: one pool of threads for both.
        library = ctypes.CDLL(str(path))
        self._linear = library.specdec_linear
        self._linear.argtypes = (c_void_p, c_int64, POINTER(structures.Weight), c_void_p, c_int)
        self._gated = library.specdec_gated
        self._gated.argtypes = (
            *(c_void_p, c_int64, POINTER(structures.Weight)),
            *(c_int, c_void_p, c_int),
        )
        self._forward = library.specdec_forward
        self._forward.argtypes = (
            *(POINTER(structures.Model), POINTER(structures.Block), c_int64),
            *(POINTER(structures.Pass), c_int),
        )
        self._read = library.specdec_read
        self._read.argtypes, self._read.restype = (c_void_p, c_int64, c_int), c_int64
        for function in (self._linear, self._gated):
            function.restype = None
        self._forward.restype = c_int

    def linear(self, x: Tensor, weight: structures.Weight) -> Tensor:
        """Return ``x @ weight.T + bias`` for bfloat16 `x` of shape ``[..., in]``."""
        x = x.contiguous()
        out = x.new_empty((*x.shape[:-1], weight.outputs))
        rows = x.numel() // weight.inputs
        self._linear(x.data_ptr(), rows, weight, out.data_ptr(), torch.get_num_threads())
        return out

    def gated(self, x: Tensor, weight: structures.Weight, *, is_silu: bool) -> Tensor:
        """Return ``activation(gate) * up`` for bfloat16 `x` of shape ``[..., in]``."""
        x = x.contiguous()
        out = x.new_empty((*x.shape[:-1], weight.outputs // 2))
        rows = x.numel() // weight.inputs
        self._gated(x.data_ptr(), rows, weight, is_silu, out.data_ptr(), torch.get_num_threads())
        return out

    def read(self, words: Tensor) -> int:
        """Return the sum of contiguous int64 `words`: reads memory, to compare a pass with."""
        return int(self._read(words.data_ptr(), words.numel(), torch.get_num_threads()))

    def forward(
        self,
        model: structures.Model,
        blocks: ctypes.Array[structures.Block],
        one_pass: structures.Pass,
    ) -> None:
        """Run one pass through `blocks` and the head; logits go where the pass says.

        Raises:
            MemoryError: if there is no room for what the pass holds meanwhile.
        """
        threads = torch.get_num_threads()
        if self._forward(model, blocks, len(blocks), one_pass, threads) != 0:
            raise MemoryError(
                f"no memory for a forward over {one_pass.batch} x {one_pass.nodes} tokens: decode "
                "fewer requests together, or draft fewer nodes"
            )


def find_kernels(settings: Settings | None = None) -> Kernels | None:
    """Return the kernels, compiled now if need be; None where they cannot run or are turned off.

    Warns once where a compiler is all that is missing.

    Args:
        settings: The switch, and the cache folder; None for those of this process.
    """
    settings = settings or Settings()
    return _load(settings.cache_dir / "kernels") if settings.native else None


@cache
def _load(folder: Path) -> Kernels | None:
    if platform.system() != "Linux" or not torch.cpu._is_avx512_bf16_supported():
        return None
    try:
        compiler = _compiler()
        if compiler is None:
            logger.warning(
                "no GNU C++ compiler found: bfloat16 decoding takes about twice as long; "
                "install g++ or name one in CXX"
            )
            return None
        return Kernels(_compiled(compiler, folder))
    except (OSError, subprocess.SubprocessError) as error:
        text = getattr(error, "stderr", None) or str(error)
        logger.warning("kernels do not compile, decoding will be slower: %s", text.strip()[-500:])
        return None


def _compiler() -> tuple[str, str] | None:
    """Return path and version of a GNU compiler: others bring a second pool of OpenMP threads."""
    for name in filter(None, (os.environ.get("CXX"), "g++")):
        path = shutil.which(name)
        if path is not None:
            command, quiet = [path, "--version"], {**os.environ, "LC_ALL": "C"}
            version = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S, env=quiet
            ).stdout
            if "Free Software Foundation" in version:
                return path, version
    return None


def _processor_flags() -> tuple[str, ...]:
    """Flags for instructions that not every processor with bfloat16 ones has."""
    has_lookups = torch.cpu.get_capabilities().get("avx512_vbmi", False)
    return ("-mavx512vbmi",) if has_lookups else ()


def _compiled(compiler: tuple[str, str], folder: Path) -> Path:
    """Return the library of this source, flags and compiler with its version in `folder`."""
    sources = sorted(_FOLDER.glob("*.?pp"))
    flags = (*_FLAGS, *_processor_flags())
    digest = hashlib.sha256("\0".join((*compiler, *flags)).encode())
    for source in sources:
        digest.update(source.read_bytes())
    library = folder / f"{digest.hexdigest()[:16]}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / library.name
        command = [compiler[0], *flags, str(_FOLDER / "forward.cpp"), "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
        made.replace(library)
    return library
