import pytest

from specdec_core.errors import ConfigError
from specdec_core.models.tiny import tiny_target
from specdec_core.models.view import TargetView
from specdec_core.profiling.step_time import StepTimePoint, measure_step_time
from specdec_core.skip import SkipConfig


def test_warm_up_is_left_out_and_sizes_alternate():
    """A forward takes its size in seconds, and each of the first four 100 more."""
    sizes, now = [], [0.0]

    class SlowStart(TargetView):
        def forward(self, trees, cache):
            now[0] += len(trees[0]) + (100.0 if len(sizes) < 4 else 0.0)
            sizes.append(len(trees[0]))
            return super().forward(trees, cache)

    view = SlowStart(tiny_target("llama"), SkipConfig())
    measured = measure_step_time(view, [4, 1, 4], context=6, repeats=3, clock=lambda: now[0])
    assert sizes == [1, 4] * 5
    assert measured.points == (
        StepTimePoint(nodes=1, seconds=(1.0,) * 3),
        StepTimePoint(nodes=4, seconds=(4.0,) * 3),
    )


def test_deferred_work_is_waited_for():
    """Work that the device finishes later is inside the measured time."""
    now = [0.0]

    def synchronize():
        now[0] += 5.0

    measured = measure_step_time(
        tiny_target("llama").view(),
        [1],
        context=4,
        repeats=2,
        clock=lambda: now[0],
        synchronize=synchronize,
    )
    assert measured.points[0].seconds == (5.0, 5.0)


def test_nothing_to_measure_is_refused():
    with pytest.raises(ConfigError, match="must be at least 1"):
        measure_step_time(tiny_target("llama").view(), [], context=4)
