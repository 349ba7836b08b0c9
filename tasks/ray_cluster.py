"""Connecting to Ray, and what a worker needs of it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import ray
from ray.exceptions import RayError

from specdec_core.config.settings import QUIET_ENVIRONMENT, Settings
from specdec_core.errors import ConfigError, WorkerLostError
from tasks.runtime import resolve_device

logger = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 100 * 2**20  # results are small records


def connect(settings: Settings) -> bool:
    """Connect to Ray at the configured address; True if this call started or joined it.

    The address is always explicit, so that a cluster that happens to be near is never joined.
    """
    if ray.is_initialized():
        return False
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    is_local = settings.ray_address == "local"
    os.environ.setdefault("RAY_AUTH_MODE", "disabled" if is_local else "token")
    options: dict[str, Any] = {}
    if is_local:
        options = {
            "num_cpus": settings.num_workers * settings.threads,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
        }
    is_main = threading.current_thread() is threading.main_thread()
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=settings.ray_address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **options,
        )
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise WorkerLostError(
            f"Ray at {settings.ray_address!r} cannot be used ({type(error).__name__}: {error}): "
            "check SPECDEC_RAY_ADDRESS, that the cluster runs, and RAY_AUTH_MODE and "
            "RAY_AUTH_TOKEN; 'local' starts one here"
        ) from error
    except BaseException:
        ray.shutdown()  # an interrupted start has processes already
        raise
    finally:
        # Ray's own handler aborts the process; ours lets the run's row be given its end.
        if is_main and on_terminate is not None:
            signal.signal(signal.SIGTERM, on_terminate)
    return True


def worker_resources(settings: Settings) -> dict[str, float]:
    """What one worker occupies: one GPU, or its threads on the CPU."""
    if resolve_device(settings.device).startswith("cuda"):
        return {"num_gpus": 1, "num_cpus": 1}
    return {"num_cpus": settings.threads}


def check_resources(settings: Settings) -> None:
    """Refuse what the cluster could never hold; Ray itself would wait for ever.

    Raises:
        ConfigError: if workers do not fit, or the device is a certain one of several GPUs.
    """
    if settings.device.startswith("cuda:"):
        raise ConfigError(
            f"device {settings.device!r} names one GPU, but Ray chooses a GPU for each worker: set "
            "SPECDEC_DEVICE=cuda, and CUDA_VISIBLE_DEVICES to leave some out"
        )
    total: dict[str, float] = ray.cluster_resources()
    for name, amount in worker_resources(settings).items():
        kind = {"num_cpus": "CPU", "num_gpus": "GPU"}[name]
        needed = amount * settings.num_workers
        if needed > total.get(kind, 0):
            raise ConfigError(
                f"{settings.num_workers} workers need {needed:g} {kind}, but the Ray cluster at "
                f"{settings.ray_address!r} has {total.get(kind, 0):g}: lower SPECDEC_NUM_WORKERS "
                "or SPECDEC_THREADS, or add nodes"
            )


def free_resources() -> dict[str, float]:
    """Return the processors and accelerators that nothing occupies."""
    free: dict[str, float] = ray.available_resources()
    return {name: amount for name, amount in free.items() if name in {"CPU", "GPU"}}


def worker_environment(settings: Settings) -> dict[str, str]:
    """Environment of a worker process: quiet, and with its threads set explicitly."""
    passed = {
        name: os.environ[name]
        for name in ("HF_HUB_OFFLINE", "HF_HOME", "SPECDEC_DATA", "SPECDEC_CACHE")
        if name in os.environ
    }
    return QUIET_ENVIRONMENT | passed | {"OMP_NUM_THREADS": str(settings.threads)}


def end_actor(actor: Any) -> None:
    """Kill an actor; one that is gone already is no fault."""
    try:
        ray.kill(actor, no_restart=True)
    except (RayError, ValueError, RuntimeError) as error:
        logger.debug("actor was gone: %s", error)
