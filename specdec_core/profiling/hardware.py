"""What a measurement ran on, as text that is stored with it."""

from __future__ import annotations

import platform
import resource
from functools import cache
from pathlib import Path

import torch

from specdec_core.models.native.build import find_kernels


def describe_hardware(device: torch.device, *, has_own_kernels: bool | None = None) -> str:
    """Return processor or accelerator, thread count, instruction set, and whose kernels decode.

    Args:
        device: Where the target is.
        has_own_kernels: Whether the target runs on own kernels; None where none is loaded, for
            what bfloat16 ones would run on.
    """
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    capability = torch.backends.cpu.get_cpu_capability()
    if has_own_kernels is None:
        has_own_kernels = find_kernels() is not None
    kernels = "own bfloat16 kernels" if has_own_kernels else "torch kernels"
    return f"{_processor()}, {torch.get_num_threads()} threads, {capability}, {kernels}"


def peak_memory_bytes(device: torch.device) -> int:
    """Return peak memory so far, bytes: of the accelerator, or resident memory of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@cache
def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
