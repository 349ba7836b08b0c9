"""What a measurement ran on, as text that is stored with it."""

from __future__ import annotations

import platform
import resource
from functools import cache
from pathlib import Path

import torch


def describe_hardware(device: torch.device) -> str:
    """Return processor or accelerator, thread count and the instruction set torch uses."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{_processor()}, {torch.get_num_threads()} threads, {capability}"


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
