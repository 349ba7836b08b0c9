"""The step-time curve t(n): seconds of one target forward over n nodes, measured here and now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from pydantic import Field

from specdec_core.config.base import Record
from specdec_core.errors import ConfigError
from specdec_core.models.view import TargetView
from specdec_core.randomness import shuffling_generator
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
    rng = shuffling_generator(0)
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
