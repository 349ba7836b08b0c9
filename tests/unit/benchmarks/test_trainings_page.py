"""The page of trainings, from runs that are stored and exported as a user's are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.exported import ExportedRuns
from benchmarks.trainings_page import NOTHING, training_tables
from db.cells import CellFigures
from db.schemas import Interval
from db.store import Store
from flows.exports import Export, export_of
from specdec_core.config.presets import benchmark_config
from tasks.benchmark_report import BenchmarkReport, MethodOverall
from tasks.draft_report import DraftEvaluation
from tasks.loss_compose import compare_arms
from tasks.loss_report import LossReport
from tests.integration import store_examples
from tests.unit.flows import training_examples

TRAINING = "train-drafter-wtv-smollm2-135m"
LOSSES = "compare-losses-kl-wtv-smollm2-135m"
BENCHMARK = "benchmark-drafters-gemma3-270m"
HERE = "../benchmarks/results/trainings"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def runs(tmp_path: Path) -> ExportedRuns:
    return ExportedRuns(tmp_path / "trainings")


def decoded(chain: tuple[int, ...], tree: tuple[int, ...]) -> DraftEvaluation:
    """A sampled chain and a greedy tree that accepted these tokens step by step."""
    sampled = training_examples.evaluation(chain)
    (greedy,) = training_examples.evaluation(tree).cells
    greedy = greedy.model_copy(update={"shape": "tree", "temperature": 0.0})
    return sampled.model_copy(update={"cells": (*sampled.cells, greedy)})


def loss_report(run_id: str, **changes: object) -> LossReport:
    """Two losses with two seeds of one prompt, in two settings."""
    arms = {
        ("kl", 0): decoded((1, 0), (2, 2)),
        ("kl", 1): decoded((1, 0), (2, 2)),
        ("wtv", 0): decoded((1, 1), (1, 1)),
        ("wtv", 1): decoded((1, 1), (1, 1)),
    }
    cells, compared, notes = compare_arms(arms)
    report = training_examples.loss_report(run_id)
    (kl, wtv), (rate, failed) = report.trainings, report.rates
    other = {"loss": "wtv", "is_chosen": False, "best_step": 25}
    found = {"criterion": "sampling", "start_length": 1.25, "best_length": 2.0, "best_step": 25}
    kl = kl.model_copy(update=found)
    values = {
        "trainings": (kl, kl.model_copy(update={"seed": 1, "best_length": 2.25}), wtv),
        "rates": (rate, failed, rate.model_copy(update=other)),
        "cells": cells,
        "changes": compared,
        "notes": (*notes, "one remark"),
        **changes,
    }
    return report.model_copy(update=values)


def exported_losses(store: Store, **changes: object) -> Export:
    run = store_examples.make_run(store, kind="compare-losses", name="kl wtv")
    summary = loss_report(run.id, **changes).model_dump(mode="json")
    return export_of(store, store.runs.update(run.id, status="completed", summary=summary))


def exported_benchmark(store: Store) -> Export:
    """Two drafters, one of which failed."""
    figures = CellFigures(
        num_items=1,
        num_tokens=9,
        acceptance_length=2.5,
        tokens_per_s=72.0,
        speedup=Interval(estimate=1.5, low=1.25, high=1.75),
    )
    run = store_examples.make_run(store, kind="benchmark", name="drafters")
    cells = (
        store_examples.cell(run.id, drafter="draft-model:model=wtv", figures=figures),
        store_examples.cell(
            run.id,
            drafter="eagle",
            status="failed",
            error="OSError: no file\nthere",
            figures=None,
            certificate=None,
            samples=(),
        ),
    )
    overall = MethodOverall(
        drafter="draft-model:model=wtv",
        level="exact",
        num_rows=2,
        mean_speedup=Interval(estimate=1.375, low=1.25, high=1.5),
        figures=figures,
    )
    report = BenchmarkReport(
        run_id=run.id,
        config=benchmark_config({}),
        cells=cells,
        overall=(overall,),
        num_evaluated=2,
        num_memoised=0,
    ).model_dump(mode="json", exclude={"cells": {"__all__": {"samples"}}})
    return export_of(store, store.runs.update(run.id, status="completed", summary=report))


def section(text: str, title: str) -> list[str]:
    """The lines of the text below a heading, up to the next one."""
    _, has_title, rest = text.partition(f"{title}\n")
    assert has_title, title
    return rest.partition("\n#")[0].splitlines()


def test_a_folder_that_is_not_there_says_that_nothing_is_stored(runs: ExportedRuns) -> None:
    assert training_tables(runs.load(), runs) == NOTHING


def test_a_training_is_a_row_that_leads_to_its_page(store: Store, runs: ExportedRuns) -> None:
    run_id = training_examples.seed_training(store).run_id
    run = store.runs.get(run_id)
    assert run is not None
    export = export_of(store, run)
    assert export.name == TRAINING
    found = training_tables({TRAINING: export.document}, runs)
    # 15 samples with 600 response tokens; two depths of 0.1 and 0.05, then of 0.8 and 0.4.
    assert section(found, "## Trainings")[-1] == (
        f"| [wtv]({HERE}/{TRAINING}.md) | pypi:smollm2-135m | `pruned` | wtv | 0 | 15 | 600 "
        "| 50, 2 | 1.150 | 2.200 at step 50 | sampling | 2.250 | validated |"
    )


def test_settings_of_a_comparison_have_their_own_tables_and_changes(
    store: Store, runs: ExportedRuns
) -> None:
    export = exported_losses(store)
    found = training_tables({LOSSES: export.document}, runs)
    title = f"## Losses for `pruned` of pypi:smollm2-135m: [kl wtv]({HERE}/{LOSSES}.md)"
    assert section(found, title)[1].startswith("2 trainings. 1600 prompts, 6 epochs, windows")
    trained = section(found, "### Trainings, expected acceptance length on validation data")
    # Seeds that differ in a column stand beside each other there.
    assert trained[3:5] == [
        "| kl | 0, 1 | 0.0001 | 1.250 | 2.000, 2.250 | 2.125 | 25 | sampling | validated |",
        "| wtv | 0 | 0.0001 | - | - | - | - | - | validated |",
    ]
    rates = "### Learning rates, first seed: expected acceptance length, the one taken in bold"
    assert section(found, rates)[1:5] == [
        "| loss | 0.0001 | 0.001 |",
        "| --- | --- | --- |",
        "| kl | **2.000 (start)** | failed |",
        "| wtv | 2.000 | - |",
    ]
    sizes = "(2 seeds, 1 prompts)"
    chain = section(found, f"### Accepted draft tokens per step, chain, T=1 {sizes}")
    # Half a token a step against one; with the bonus token 1.5 against 2.
    assert "| kl | 0.500 | 0.500 (0.000) | 0.500 [0.500, 0.500] | 0/0.5/1 |" in chain
    changed = "+100.0% [+100.0%, +100.0%] | +33.3% [+33.3%, +33.3%] | too few prompts |"
    assert chain[-1] == f"| wtv | kl | 1 | {changed}"
    assert "Paired changes against kl, 95 % intervals over prompts:" in chain
    tree = section(found, f"### Accepted draft tokens per step, tree, greedy {sizes}")
    # Two tokens a step against one; with the bonus token 3 against 2.
    assert "| kl | 2.000 | 2.000 (0.000) | 2.000 [2.000, 2.000] | 2/2/2 |" in tree
    changed = "-50.0% [-50.0%, -50.0%] | -33.3% [-33.3%, -33.3%] | too few prompts |"
    assert f"| wtv | kl | 1 | {changed}" in tree
    assert tree[-1] == "- one remark"


def test_what_losses_gain_on_their_start_stands_before_what_they_gain_on_each_other(
    store: Store, runs: ExportedRuns
) -> None:
    arms = {("start", 0): decoded((1, 0, 0, 1), (1, 1)), ("kl", 0): decoded((1, 1), (2, 2))}
    arms["wtv", 0] = decoded((2, 2), (2, 2))
    cells, compared, _ = compare_arms(arms)
    export = exported_losses(store, cells=cells, changes=compared)
    found = training_tables({LOSSES: export.document}, runs)
    title = "### Accepted draft tokens per step, chain, T=1 (1 seed, 1 prompts)"
    lines = [line for line in section(found, title) if line]
    # Half a token a step, then one, then two; with the bonus token 1.5, 2 and 3.
    rows = [
        f"| {change} | too few prompts |"
        for change in (
            "kl | start | 1 | +100.0% [+100.0%, +100.0%] | +33.3% [+33.3%, +33.3%]",
            "wtv | start | 1 | +300.0% [+300.0%, +300.0%] | +100.0% [+100.0%, +100.0%]",
        )
    ]
    first = lines.index("Paired changes against start, 95 % intervals over prompts:")
    second = lines.index("Paired changes against kl, 95 % intervals over prompts:")
    assert lines[first + 3 : second] == rows
    assert lines[second + 3].startswith("| wtv | kl | 1 | +100.0%")


def test_plots_of_a_comparison_are_pictures(store: Store, runs: ExportedRuns) -> None:
    exported_losses(store).write(runs.folder)
    found = training_tables(runs.load(), runs)
    pictures = [
        f"![{LOSSES}: {stem}]({HERE}/{LOSSES}/{stem}.png)" for stem in ("changes", "curves")
    ]
    assert "\n".join(pictures) in found
    assert (runs.folder / f"{LOSSES}.md").is_file()


def test_a_comparison_of_one_loss_has_neither_rates_nor_changes(
    store: Store, runs: ExportedRuns
) -> None:
    export = exported_losses(store, rates=(), changes=(), notes=())
    found = training_tables({LOSSES: export.document}, runs)
    assert "Learning rates" not in found
    assert "Paired changes" not in found
    assert "### Accepted draft tokens per step, tree, greedy" in found


def test_benchmarks_show_speed_over_autoregressive_and_what_failed(
    store: Store, runs: ExportedRuns
) -> None:
    export = exported_benchmark(store)
    assert export.name == BENCHMARK
    found = training_tables({BENCHMARK: export.document}, runs)
    lines = section(found, f"### [drafters]({HERE}/{BENCHMARK}.md)")
    assert lines[1] == "2 cells measured, 1 failed."
    # A step commits 2.5 tokens at 1.5 times the speed: it takes as long as 1.67 plain ones.
    measured = "2.500 | 72.0 | 1.500x [1.250, 1.750] | 1.67 | 1/1 |"
    assert f"| translation | draft-model:model=wtv | {measured}" in lines
    assert "| translation | eagle | - | failed: OSError: no file there | - | - | - |" in lines
    assert lines[-1] == "| draft-model:model=wtv | 2 | 2.500 | 1.375x [1.250, 1.500] | exact |"


def test_kinds_stand_in_one_order_whatever_their_names(store: Store, runs: ExportedRuns) -> None:
    documents = {
        "a": exported_benchmark(store).document,
        "b": exported_losses(store).document,
    }
    found = training_tables(documents, runs)
    assert found.index("## Losses for") < found.index("## Drafters in the decode loop")


def test_a_document_of_another_kind_is_refused_by_name(runs: ExportedRuns) -> None:
    with pytest.raises(ValueError, match=r"a\.json is of kind tss-search, but .* another folder"):
        training_tables({"a": {"kind": "tss-search", "search": "qa"}}, runs)
    with pytest.raises(ValueError, match=r"a\.json is of kind unknown"):
        training_tables({"a": {"comparison": "domains"}}, runs)
