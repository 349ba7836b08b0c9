"""What every task needs around its work: log files, device and dtype, provenance, locks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast, get_args

import psutil
from filelock import FileLock, Timeout

from specdec_core.config.dtype import DType
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, SearchCancelledError, StoreError
from specdec_core.provenance import describe_provenance

logger = logging.getLogger(__name__)

LogLine = Callable[[str], None]
"""Takes one line for the user; a flow passes its run logger's info."""

_OWN_LOGGERS = ("specdec_core", "tasks", "db")


def provenance(settings: Settings) -> dict[str, Any]:
    """Return commit, code version, packages, command and machine of this process."""
    return {
        **describe_provenance(),
        "host": platform.node(),
        "pid": os.getpid(),
        "process_started_at": psutil.Process().create_time(),
        "num_cpus": os.cpu_count() or 1,
        "threads": settings.threads,
        "num_workers": settings.num_workers,
        "ray_address": settings.ray_address,
    }


def resolve_device(device: str) -> str:
    """Return the torch device meant by `device`; ``auto`` is CUDA where it works, else CPU."""
    if device != "auto":
        return device
    if shutil.which("nvidia-smi") is None:
        return "cpu"
    import torch  # slow to import, and only machines with a driver need to ask

    return "cuda" if torch.cuda.is_available() else "cpu"


def resolve_dtype(dtype: str, folder: Path, device: str) -> DType:
    """Return the floating point type to load a checkpoint in.

    Args:
        dtype: A type, or ``auto`` for the one that the checkpoint's configuration names, but
            float32 in place of a 16-bit one on a processor that would have to convert it in every
            product. Weights of 8 bits are never chosen for the user.
        folder: Folder of the checkpoint.
        device: A torch device, as `resolve_device` returns it.

    Raises:
        ConfigError: if the type is not one of those supported.
    """
    name = checkpoint_config(folder).get("dtype") or "float32" if dtype == "auto" else dtype
    if name not in get_args(DType):
        raise ConfigError(
            f"dtype {name!r} is not supported: choose one of {', '.join(get_args(DType))} or auto"
        )
    if dtype == "auto" and device == "cpu" and name in ("bfloat16", "float16"):
        from specdec_core.models.processor import multiplies  # loads torch

        if not multiplies(name):
            logger.info(
                "float32 in place of %s, which this processor has no instructions for; "
                "dtype %s keeps it and takes half the memory",
                *(name, name),
            )
            return "float32"
    return cast(DType, name)


def checkpoint_config(folder: Path) -> dict[str, Any]:
    """Return configuration values of the text decoder in `folder`, dtype under ``dtype``.

    Raises:
        ConfigError: if config.json cannot be read.
    """
    try:
        outer = json.loads((folder / "config.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(
            f"{folder} has no readable config.json ({error}): give a checkpoint folder"
        ) from error
    config = {**outer, **outer.get("text_config", {})}
    config["dtype"] = config.get("dtype") or config.get("torch_dtype")
    return config


class _RunLogHandler(logging.FileHandler):
    """Loses lines silently where the disk is full; the store says so in words and ends the run."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: a traceback for every line would hide the message that counts."""


def run_files(settings: Settings, run_id: str) -> Path:
    """Return the folder for files of a run, such as plots; it is made by who writes into it."""
    return settings.home_dir / "runs" / run_id


@contextmanager
def run_log(settings: Settings, run_id: str) -> Iterator[Path]:
    """Write what our loggers say on info level to a file of this run; yield its path."""
    path = settings.home_dir / "logs" / f"run-{run_id}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = _RunLogHandler(path, encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"log file {path} cannot be written ({error}): check SPECDEC_HOME and free space"
        ) from error
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    with contextlib.closing(handler), attached(handler, _OWN_LOGGERS):
        yield path


@contextmanager
def attached(handler: logging.Handler, names: Sequence[str]) -> Iterator[None]:
    """Let `handler` have what the named loggers say on info level and above, for this block."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.addHandler(handler)
        if one.getEffectiveLevel() > logging.INFO:
            one.setLevel(logging.INFO)
    try:
        yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.removeHandler(handler)
            one.setLevel(level)


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`, waiting for it; freed when the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def patient_lock(
    path: Path, should_stop: Callable[[], bool], on_wait: Callable[[], None]
) -> Iterator[None]:
    """Hold an exclusive lock on `path`, freed when the process dies.

    Args:
        path: Of the lock's file.
        should_stop: Asked once a second while another process has it.
        on_wait: Called once if another process has it.

    Raises:
        SearchCancelledError: if told to stop while waiting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    has_waited = False
    while not lock.is_locked:
        try:
            lock.acquire(timeout=1.0)
        except Timeout:
            if should_stop():
                text = "told to stop while another process does the same work"
                raise SearchCancelledError(text) from None
            if not has_waited:
                has_waited = True
                on_wait()
    try:
        yield
    finally:
        lock.release()
