"""Step time when OpenMP threads sleep at once and when they spin first, on both kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import torch

from benchmarks.common import write
from specdec_core.config.settings import QUIET_ENVIRONMENT, Settings
from specdec_core.models.loading import load_target
from specdec_core.models.reference import resolve_model
from specdec_core.profiling.step_time import measure_step_time

_MODELS = ("pypi:gemma3-270m", "pypi:smollm2-135m")
_NODES = (1, 8, 32)
_SPIN_COUNTS = ("0", QUIET_ENVIRONMENT["GOMP_SPINCOUNT"])
_ROUNDS = 2


def run() -> None:
    """Measure and store median milliseconds per forward, in processes of their own, alternating."""
    figures: dict[str, Any] = {f"GOMP_SPINCOUNT={spin}": [] for spin in _SPIN_COUNTS}
    for _ in range(_ROUNDS):
        for spin in _SPIN_COUNTS:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.threads"],
                env={**os.environ, **QUIET_ENVIRONMENT, "GOMP_SPINCOUNT": spin},
                capture_output=True,
                text=True,
                check=True,
            )
            figures[f"GOMP_SPINCOUNT={spin}"].append(json.loads(done.stdout))
    write("threads", figures)


def _measure() -> dict[str, Any]:
    """Return milliseconds by kernels, model and number of nodes; context 300."""
    found: dict[str, Any] = {}
    for native in (False, True):
        settings = Settings().model_copy(update={"native": native})
        torch.set_num_threads(settings.threads)
        for reference in _MODELS:
            model = resolve_model(reference, settings.cache_dir)
            target = load_target(model, dtype="bfloat16", device="cpu", settings=settings)
            kernels = "own kernels" if target.engine is not None else "torch kernels"
            curve = measure_step_time(target.view(), _NODES, context=300)
            found.setdefault(kernels, {})[reference] = {
                str(point.nodes): round(point.median_s * 1e3, 2) for point in curve.points
            }
    return found


if __name__ == "__main__":
    json.dump(_measure(), sys.stdout)
