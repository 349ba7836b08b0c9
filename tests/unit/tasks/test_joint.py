"""Several runs beside each other, from what is stored alone."""

from __future__ import annotations

from typing import Any

import pytest

from db.store import Store
from specdec_core.config.drafters import parse_drafter
from specdec_core.config.presets import benchmark_config
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, RunNotFoundError
from specdec_core.records import StepTrace
from tasks.benchmark_report import BenchmarkReport
from tasks.joint import joint_plots, read_joint
from tests.integration import store_examples
from tests.table_evaluator import Control
from tests.unit.tasks.inline_search import search

ITEMS = ("de-1", "de-2")


def trace(*accepted: int) -> StepTrace:
    return StepTrace(
        drafted=(4,) * len(accepted),
        depth=(4,) * len(accepted),
        accepted=accepted,
        committed=tuple(count + 1 for count in accepted),
    )


def benchmark_run(
    store: Store, skip: str, accepted: dict[str, tuple[int, ...]], **cell: Any
) -> str:
    """A finished benchmark of one drafter whose items accept these draft tokens per step."""
    run = store_examples.make_run(store, kind="benchmark", name="drafters")
    asked = store_examples.request(
        skip=skip, item_ids=tuple(accepted), drafter=parse_drafter("prompt-lookup"), is_timed=True
    )
    samples = tuple(
        store_examples.sample(item, trace=trace(*counts)) for item, counts in accepted.items()
    )
    store.evaluations.put(asked, store_examples.result(asked, samples=samples))
    done = store_examples.cell(
        run.id, skip=skip, evaluation_key=asked.key, suite_hash="s" * 64, samples=(), **cell
    )
    report = BenchmarkReport(
        run_id=run.id,
        config=benchmark_config({"skip": skip}),
        cells=(done,),
        num_evaluated=1,
        num_memoised=0,
    )
    store.runs.update(run.id, status="completed", summary=report.model_dump(mode="json"))
    return run.id


def test_acceptance_by_drafter_is_paired_by_item(store: Store) -> None:
    dense = benchmark_run(store, "", {"de-1": (0, 1), "de-2": (0, 0), "de-3": (4, 4)})
    sparse = benchmark_run(store, "a3", {"de-2": (1, 1), "de-1": (2, 2)})
    (row,) = read_joint(store, [dense, sparse]).drafters
    # The third item has no partner. Dense: 3 + 2 tokens in 4 steps; sparse: 6 + 4 in 4.
    assert (row.num_items, row.dense, row.sparse) == (2, 5 / 4, 10 / 4)
    assert row.change is not None
    assert row.change.estimate == pytest.approx(1.0)
    assert (row.drafter, row.domain, row.skip) == ("prompt-lookup", "translation", "a3")
    plots = dict(joint_plots(read_joint(store, [sparse, dense])))
    (name,) = plots
    assert name == "drafters-pypi-gemma3-270m-translation"
    bars = plots[name]().axes[0].patches
    assert [bar.get_width() for bar in bars] == [5 / 4, 10 / 4]


def test_benchmarks_that_do_not_pair_are_refused(store: Store) -> None:
    dense = benchmark_run(store, "", {"de-1": (0, 1)})
    other = benchmark_run(store, "a3", {"de-1": (2, 2)}, domain="qa")
    with pytest.raises(ConfigError, match="share no drafter and domain of a dense and a sparse"):
        read_joint(store, [dense, other])


def test_what_cannot_be_read_is_refused_in_words(store: Store) -> None:
    running = store_examples.make_run(store)
    with pytest.raises(ConfigError, match="is running, and only completed ones"):
        read_joint(store, [running.id])
    with pytest.raises(RunNotFoundError, match="there is no run 'x'"):
        read_joint(store, ["x"])
    with pytest.raises(ConfigError, match="named twice"):
        read_joint(store, ["x", "x"])
    store.runs.update(running.id, status="completed", summary={"headline": "found"})
    with pytest.raises(ConfigError, match="is a tss-search run without the report"):
        read_joint(store, [running.id])


def test_single_units_of_one_target_share_a_figure(
    settings: Settings, store: Store, control: Control
) -> None:
    first = search(settings, store, control)
    second = search(settings, store, control, domain="qa")
    joint = read_joint(store, [first.run_id, second.run_id])
    plots = dict(joint_plots(joint))
    assert list(plots) == ["ablation", "heldout"]
    labels = [line.get_label() for line in plots["ablation"]().axes[0].get_lines()[:2]]
    assert labels == ["translation", "qa"]
    ticks = [text.get_text() for text in plots["heldout"]().axes[0].get_yticklabels()]
    assert ticks == ["translation: 2,3", "qa: 2,3"]
    other = search(settings, store, control, target="path:/other")
    both = read_joint(store, [first.run_id, other.run_id])
    names = [name for name, _ in joint_plots(both)]
    assert names == ["ablation-path-table", "ablation-path-other", "heldout"]
