"""The step-time curve t(n): seconds of one target forward over n nodes, measured here and now."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from statistics import median

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError, MeasurementError
from specdec_core.models.target import TargetView
from specdec_core.tree.token_tree import TokenTree

_WARM_UP = 2


class StepTimePoint(Record):
    """Seconds of one forward over `nodes` nodes."""

    nodes: int = Field(ge=1, description="tree nodes, root included")
    seconds: tuple[float, ...] = Field(min_length=1, description="every repeat, warm-up left out")

    @property
    def median_s(self) -> float:
        """Median seconds."""
        return median(self.seconds)


class StepTimeCurve(Record):
    """Step time by number of nodes at one context length and batch size 1."""

    context: int = Field(ge=1, description="committed tokens in the cache")
    points: tuple[StepTimePoint, ...] = Field(min_length=1, description="by increasing nodes")

    def seconds_at(self, nodes: float) -> float:
        """Return the median step time at `nodes`, linear between points, constant below the first.

        Raises:
            MeasurementError: above the largest measured number of nodes.
        """
        points = self.points
        if nodes > points[-1].nodes:
            raise MeasurementError(
                f"step time of {nodes} nodes was not measured: the curve ends at {points[-1].nodes}"
            )
        if nodes <= points[0].nodes:
            return points[0].median_s
        right = next(i for i, point in enumerate(points) if nodes <= point.nodes)
        low, high = points[right - 1], points[right]
        share = (nodes - low.nodes) / (high.nodes - low.nodes)
        return low.median_s + share * (high.median_s - low.median_s)

    def predicted_speedup(self, acceptance_length: float, nodes: float, draft_s: float) -> float:
        """Return the predicted speed-up over one token per step.

        Args:
            acceptance_length: Committed tokens per verify step.
            nodes: Mean nodes per verify step, root included.
            draft_s: Drafting seconds per step.

        Source: Leviathan et al. 2023, theorem 3.8, with a measured verification cost.
        """
        return acceptance_length * self.seconds_at(1) / (self.seconds_at(nodes) + draft_s)


def measure_step_time(
    view: TargetView,
    nodes: Sequence[int],
    *,
    context: int,
    repeats: int = 7,
    clock: Callable[[], float] = time.perf_counter,
    synchronize: Callable[[], None] | None = None,
) -> StepTimeCurve:
    """Measure t(n) on random tokens; sizes alternate so that drift of the machine spreads evenly.

    Args:
        view: The (sparse) target.
        nodes: Numbers of tree nodes, root included, each at least 1.
        context: Committed tokens before the tree.
        repeats: Counted forwards per size.
        clock: Monotonic clock, seconds.
        synchronize: Waits for the device, None on a CPU.

    Raises:
        ConfigError: if there is nothing to measure.
    """
    sizes = sorted(set(nodes))
    if not sizes or sizes[0] < 1 or context < 1 or repeats < 1:
        raise ConfigError(
            f"step time of nodes {list(nodes)}, context {context}, {repeats} repeats: all must be "
            "at least 1"
        )
    rng = random.Random(0)
    cache = view.new_cache(1, context + sizes[-1])
    view.prefill([rng.choices(range(view.vocab_size), k=context)], cache)
    trees = {n: TokenTree.chain(0, rng.choices(range(view.vocab_size), k=n - 1)) for n in sizes}
    seconds: dict[int, list[float]] = {n: [] for n in sizes}
    wait = synchronize or (lambda: None)
    for repeat in range(_WARM_UP + repeats):
        for size in sizes:
            wait()
            start = clock()
            view.forward([trees[size]], cache)
            wait()
            if repeat >= _WARM_UP:
                seconds[size].append(clock() - start)
            cache.rollback([context])
    points = tuple(StepTimePoint(nodes=n, seconds=tuple(seconds[n])) for n in sizes)
    return StepTimeCurve(context=context, points=points)
