"""Processes we started: recognised by more than their number, and ended without touching others."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

import psutil
from pydantic import Field

from specdec_core.config.base import Record

# Every process below one `specdec up` carries the id of that start in its environment.
INSTANCE_VARIABLE = "SPECDEC_INSTANCE"
# Prefect gives the id of its run to the process of a flow.
FLOW_RUN_VARIABLE = "PREFECT__FLOW_RUN_ID"
# Clock adjustments move the start time that the kernel's tick count is translated to.
_START_TOLERANCE_S = 2.0


class ProcessIdentity(Record):
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int = Field(ge=1)
    started: float = Field(description="start time, seconds since the epoch")

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of the process `pid`, or None if there is none."""
        try:
            return cls(pid=pid, started=psutil.Process(pid).create_time())
        except psutil.NoSuchProcess:
            return None

    def find(self) -> psutil.Process | None:
        """Return the running process, or None if it ended or its number was given away."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < _START_TOLERANCE_S
            ended = process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if same and not ended else None

    @property
    def is_alive(self) -> bool:
        """True if this very process still runs."""
        return self.find() is not None


def environment_value(process: psutil.Process, name: str) -> str | None:
    """Return a variable of a process's environment; None if absent or not ours to read."""
    try:
        value: str | None = process.environ().get(name)
    except (psutil.Error, OSError):
        return None
    return value


def instance_processes(instance: str) -> list[psutil.Process]:
    """Return every living process below the start `instance`, this process left out."""
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid()
        and environment_value(process, INSTANCE_VARIABLE) == instance
        and _is_running(process)
    ]


def session_processes(instance: str, leader_pid: int) -> list[psutil.Process]:
    """Return the living processes of the session that a service of this start led.

    Every service leads a session; what it started survives it there when it is killed. Flow runs
    lead sessions of their own.
    """
    return [p for p in instance_processes(instance) if _session_of(p) == leader_pid]


def flow_run_processes(instance: str | None = None) -> dict[str, psutil.Process]:
    """Return the living flow-run processes by Prefect run id, of one start or of all.

    What a flow starts inherits its variables and may outlive it: only Prefect's engine counts.
    """
    found: dict[str, psutil.Process] = {}
    for process in psutil.process_iter():
        run_id = environment_value(process, FLOW_RUN_VARIABLE)
        if run_id is None or not _is_running(process) or not _is_engine(process):
            continue
        if instance is None or environment_value(process, INSTANCE_VARIABLE) == instance:
            found[run_id] = process
    return found


def end_processes(processes: Iterable[psutil.Process], grace_s: float) -> list[int]:
    """Ask `processes` to end, force those that do not within `grace_s`; return their numbers."""
    alive = [process for process in processes if _is_running(process)]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGTERM)
    pids = [process.pid for process in alive]
    _, stubborn = psutil.wait_procs(alive, timeout=grace_s)
    for process in stubborn:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(stubborn, timeout=5.0)
    return pids


def wait_until_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    """Wait for a process that need not be our child; True if it ended in time."""
    deadline = time.monotonic() + timeout_s
    while identity.is_alive:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def _is_engine(process: psutil.Process) -> bool:
    try:
        return "prefect.engine" in process.cmdline()
    except psutil.Error:
        return False


def _session_of(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
