"""Strategies that share workers: rests are filled, and nobody's answer depends on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from db.store import Store
from specdec_core.config.search import CompareConfig, StrategyName
from specdec_core.config.settings import Settings
from tasks.heldout import CHUNK_ITEMS
from tasks.sweep import run_sweep
from tasks.sweep_report import SweepReport
from tests.scripted_pool import Clock, ScriptedPool
from tests.table_evaluator import Control, TableEvaluator, config, workload


def compare(
    folder: Path,
    strategies: tuple[StrategyName, ...],
    num_workers: int,
    seconds: Mapping[str, float] | None = None,
    **changes: object,
) -> tuple[SweepReport, list[tuple[str, str]]]:
    """The report of a comparison on scripted workers with a store of its own, and its events."""
    folder.mkdir()
    pool = ScriptedPool(num_workers, TableEvaluator(folder), Clock(), seconds=seconds or {})
    settings = Settings(home=folder / "home", cache=folder / "cache", threads=1)
    given = CompareConfig(search=config(**changes), strategies=strategies)
    with Store.open(settings.resolved_database_url) as store:
        report = run_sweep(given, settings, store, lambda _: pool, prepare_workload=workload)
    keys = [key for key, _ in Control(folder).calls]
    assert len(keys) == len(set(keys))
    return report, pool.events


def begun(events: list[tuple[str, str]]) -> list[str]:
    return [name for what, name in events if what == "begin"]


def test_a_strategy_fills_the_barrier_of_another(tmp_path: Path) -> None:
    report, events = compare(tmp_path / "run", ("tss", "random"), 2, {"4": 20.0})
    during = begun(events[events.index(("begin", "4")) : events.index(("end", "4"))])
    # Level 2 of tss waits for 4. Random's five pairs need not.
    drawn = [name for name in during if "," in name]
    assert len(drawn) == 5
    tss, random = report.variants
    assert tss.answer.skip == "2,3"
    assert [draws.num_draws for draws in random.draws] == [4, 5]


def test_what_holds_up_a_whole_search_goes_first(tmp_path: Path) -> None:
    _, events = compare(tmp_path / "run", ("sleb", "gm-skip"), 1)
    # Both need dense; then come sleb's losses of single blocks and what gm-skip begins with. 4
    # costs more than leaving it out is worth, 3 and 2 do not. Each time the worker begins with a
    # loss of sleb's second level, where 4 is left out too, while gm-skip is told; then comes the
    # one set that gm-skip waits for.
    singles = ["dense", "1", "2", "3", "4", "4"]
    assert begun(events)[:11] == [*singles, "1,4", "3", "2,4", "2,3", "3,4"]


def test_neither_workers_nor_their_speed_change_anything(tmp_path: Path) -> None:
    strategies: tuple[StrategyName, ...] = ("gm-skip", "tss", "accept-only", "random")
    alone, _ = compare(tmp_path / "one", strategies, 1)
    uneven = {"dense": 9.0, "2": 5.0, "3": 7.0, "2,4": 3.0, "1,2": 0.5}
    several, _ = compare(tmp_path / "four", strategies, 4, uneven)
    assert several.variants == alone.variants
    assert several.dense == alone.dense
    assert several.costs.num_evaluated == alone.costs.num_evaluated
    assert several.costs.num_memoised == alone.costs.num_memoised
    # What several need is counted once, in the order of the strategies.
    assert alone.variants[0].num_memoised == 0
    total = sum(variant.num_evaluated for variant in alone.variants)
    assert total == 1 + 4 + 6  # dense, blocks and pairs: all there are
    skips = {variant.answer.skip for variant in alone.variants} | {""}
    num_chunks = math.ceil(20 / CHUNK_ITEMS)
    assert alone.costs.num_evaluated == total + num_chunks * (len(skips) + 1)  # and autoregressive


@pytest.mark.parametrize("num_workers", [1, 3])
def test_strategies_that_drop_sets_share_workers_with_others(
    tmp_path: Path, num_workers: int
) -> None:
    strategies: tuple[StrategyName, ...] = ("tss", "accept-only", "gm-skip")
    whole, _ = compare(tmp_path / "whole", strategies, 1)
    parts, _ = compare(tmp_path / "parts", strategies, num_workers, bound=True, batch_size=2)
    assert [(each.name, each.answer.skip, each.stop_reason) for each in parts.variants] == [
        (each.name, each.answer.skip, each.stop_reason) for each in whole.variants
    ]
