"""The benchmark at equal overhead: figures of a setting, kept cells, and counted outputs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import equal_overhead
from benchmarks.equal_overhead import _BENCHMARKS, _Cell, _compared, _figures, _identical, _stored
from specdec_core.bench.overhead import StepCounts
from specdec_core.bench.statistics import Bootstrap
from specdec_core.config.ablation import Sweep


def cell(accepted: int, drafting: int, outputs: tuple[str, ...] = ("a", "b")) -> _Cell:
    """Two requests of ten steps each, eight of them hits, with five candidate nodes a step."""
    return _Cell(StepCounts((10, 10), (8, 8), (accepted,) * 2, (drafting,) * 2, (50, 50)), outputs)


def test_figures_are_means_over_benchmarks() -> None:
    found = _figures({"gsm8k": cell(8, 100), "mbpp": cell(16, 200)})
    # 16 of 20 steps hit; 16 and 32 accepted tokens in 20 steps, and on 16 hits.
    assert found["hit_rate"] == 0.8
    assert found["decoding_efficiency"] == pytest.approx((1.8 + 2.6) / 2)
    assert found["acceptance_length_on_hits"] == pytest.approx((2.0 + 3.0) / 2)
    assert (found["draft_overhead"], found["verify_overhead"]) == (15.0, 5.0)
    assert found["benchmarks"]["mbpp"]["draft_overhead"] == 20.0


def test_a_cell_is_read_back_as_it_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "cell.json"
    assert _stored(path) is None
    path.write_text(json.dumps(asdict(cell(3, 7))))
    assert _stored(path) == cell(3, 7)


def test_outputs_are_compared_with_those_of_the_first_method() -> None:
    first = {"gsm8k": cell(1, 1), "mbpp": cell(1, 1)}
    second = {"gsm8k": cell(1, 1, ("a", "x")), "mbpp": cell(1, 1)}
    assert _identical([first, second, first]) == {"compared": 8, "identical": 7}


def test_ratios_are_of_the_first_curve_over_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = tuple(
        Sweep(name, name, "size", tuple((label, f"{name}:{label}") for label in ("small", "large")))
        for name in ("ptd", "lookahead")
    )
    monkeypatch.setattr(equal_overhead, "OVERHEAD_CURVES", curves)
    monkeypatch.setattr(equal_overhead, "_BUDGETS", {"total": (15.0, 25.0)})
    monkeypatch.setattr(equal_overhead, "_BOOTSTRAP", Bootstrap(num_resamples=50))
    # 15 nodes a step: 1 + 12/10 against 1 + 10/10; 25 nodes: 1 + 18/10 against 1 + 14/10.
    points = {"ptd:small": (12, 100), "ptd:large": (18, 200)}
    points |= {"lookahead:small": (10, 100), "lookahead:large": (14, 200)}
    cells = {name: dict.fromkeys(_BENCHMARKS, cell(*each)) for name, each in points.items()}
    found = _compared(cells, "total")
    assert found["decoding_efficiency"]["ptd"] == pytest.approx({"15": 2.2, "25": 2.8})
    assert found["decoding_efficiency"]["lookahead"] == pytest.approx({"15": 2.0, "25": 2.4})
    over = found["ptd_over_lookahead"]
    assert [over[label]["estimate"] for label in ("15", "25", "mean")] == pytest.approx(
        [2.2 / 2.0, 2.8 / 2.4, (2.2 / 2.0 + 2.8 / 2.4) / 2]
    )
    assert over["mean"]["num_samples"] == 2 * len(_BENCHMARKS)
