"""Step time when OpenMP threads sleep at once, and when they spin briefly first."""

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
_NODES = (1, 2, 4, 8, 16, 32)
_SPIN_COUNTS = ("0", QUIET_ENVIRONMENT["GOMP_SPINCOUNT"])
_ROUNDS = 2


def run() -> None:
    """Measure and store median seconds per forward, in processes of their own, alternating."""
    figures: dict[str, Any] = {spin: [] for spin in _SPIN_COUNTS}
    for _ in range(_ROUNDS):
        for spin in _SPIN_COUNTS:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.threads"],
                env={**os.environ, **QUIET_ENVIRONMENT, "GOMP_SPINCOUNT": spin},
                capture_output=True,
                text=True,
                check=True,
            )
            figures[spin].append(json.loads(done.stdout))
    write("threads", {f"GOMP_SPINCOUNT={spin}": rounds for spin, rounds in figures.items()})


def _measure() -> dict[str, Any]:
    """Return median milliseconds by number of nodes for both models, context 300."""
    settings = Settings()
    torch.set_num_threads(settings.threads)
    result = {}
    for reference in _MODELS:
        model = resolve_model(reference, settings.cache_dir)
        view = load_target(model, dtype="bfloat16", device="cpu").view()
        curve = measure_step_time(view, _NODES, context=300)
        result[reference] = {
            str(point.nodes): round(point.median_s * 1e3, 2) for point in curve.points
        }
    return result


if __name__ == "__main__":
    json.dump(_measure(), sys.stdout)
