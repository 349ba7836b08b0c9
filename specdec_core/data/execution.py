"""Run generated programs in a child process with limits.

This bounds time, memory and files; it is no security boundary. Run suites with code of
unknown origin in a container.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

# The child ends with this status only behind the last line of the program, so that a program
# that leaves early with status 0 has not passed.
_PASSED = 97

_LAUNCHER = """
import os, resource, sys
path, seconds, memory, passed = sys.argv[1], *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
with open(path, encoding="utf-8") as file:
    source = file.read()
exec(compile(source, path, "exec"), {"__name__": "__program__"})
os._exit(passed)
"""


@dataclass(frozen=True, slots=True)
class ExecutionLimits:
    """What a program may use: processor seconds, seconds by the clock, bytes of memory."""

    cpu_s: float = 10.0
    wall_s: float = 30.0
    memory_bytes: int = 1 << 30


def passes(program: str, limits: ExecutionLimits | None = None) -> bool:
    """Return whether a Python program runs to its end without an error within the limits.

    It runs with the standard library alone, in an empty temporary folder, with a fixed hash seed
    and without the caller's environment. Its output is discarded. When it ends, processes that
    it started are killed.
    """
    limits = limits or ExecutionLimits()
    with tempfile.TemporaryDirectory(prefix="specdec-run-") as folder:
        path = Path(folder) / "program.py"
        path.write_text(program, encoding="utf-8", errors="replace")
        command = [sys.executable, "-s", "-S", "-P", "-B", "-c", _LAUNCHER, str(path)]
        numbers = (math.ceil(limits.cpu_s), limits.memory_bytes, _PASSED)
        child = subprocess.Popen(
            [*command, *map(str, numbers)],
            cwd=folder,
            env={"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return child.wait(timeout=limits.wall_s) == _PASSED
        except subprocess.TimeoutExpired:
            return False
        finally:
            _kill_group(child)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's process group, which the child leads, and collect the child."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
