"""The benchmark driver and its comparison with a baseline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from db.cells import CellDifference
from db.store import Store
from flows.benchmark_tables import cell_table, headline, latency_table
from flows.proof_tables import difference_table
from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.config.settings import Settings
from specdec_core.data.records import Suite
from specdec_core.errors import ConfigError, DataError
from tasks.benchmark import run_benchmark
from tasks.benchmark_report import BenchmarkReport
from tasks.grid import make_grid
from tasks.mirrored import cell_metrics, report_metrics
from tasks.pool import pool_factory
from tasks.prepare import Workload
from tasks.runtime import LogLine
from tests.table_evaluator import Control, TableEvaluator, workload

# Two of the eight items that are drawn.
TIED, WRONG = "item-04", "item-06"
GRID = BenchmarkConfig(
    target="path:/table", domains=("translation", "chat"), num_items=8, repeats=2, session="one"
)


def bench(
    settings: Settings,
    store: Store,
    control: Control,
    config: BenchmarkConfig = GRID,
    log: LogLine = lambda _line: None,
) -> BenchmarkReport:
    start = pool_factory(settings, TableEvaluator(control.folder), is_inline=True)
    return run_benchmark(config, settings, store, start, log=log, prepare_workload=workload)


def test_every_cell_is_measured_paired_and_stored(
    settings: Settings, store: Store, control: Control
) -> None:
    report = bench(settings, store, control)
    keys = [(cell.domain, cell.drafter) for cell in report.cells]
    methods = ("none", "prompt-lookup", "token-recycling")
    assert keys == [(domain, m) for domain in ("translation", "chat") for m in methods]
    assert len(control.calls) == 2 * 3 * 2
    cell = report.cells[1]
    assert cell.figures is not None
    assert cell.figures.speedup is not None
    # 12 steps of 10 ms against 24.
    assert cell.figures.speedup.estimate == pytest.approx(2.0)
    assert cell.figures.tokens_per_s == pytest.approx(200)
    assert cell.certificate is not None
    assert (cell.certificate.num_identical, cell.certificate.level) == (8, "up-to-ties")
    assert [len(sample.seconds) for sample in cell.samples] == [2] * 8
    assert report.cells[0].figures is not None
    assert report.cells[0].figures.speedup is None
    assert len(store.benchmarks.list(run_id=report.run_id)) == 6
    run = store.runs.get(report.run_id)
    assert run is not None
    assert run.status == "completed"


def test_latency_is_stored_shown_and_mirrored_by_step_and_by_token(
    settings: Settings, store: Store, control: Control
) -> None:
    cell = bench(settings, store, control).cells[1]
    # 8 items twice, 12 steps of 10 ms each, 24 tokens after the first: 5 ms per token.
    assert cell.figures is not None
    assert cell.figures.step_ms is not None
    assert cell.figures.step_ms.num == 8 * 2 * 12
    (stored,) = store.benchmarks.list(domain=cell.domain, drafter=cell.drafter)
    assert stored.figures == cell.figures
    row = latency_table(bench(settings, store, control)).rows[1]
    assert row[:2] == ("translation", "prompt-lookup")
    assert row[2:] == ("192", "10.00", "10.00", "10.00", "16", "5.00", "5.00", "5.00")
    assert cell_metrics(cell)["step_ms/p99"] == pytest.approx(10.0)
    assert cell_metrics(cell)["token_ms/p50"] == pytest.approx(5.0)


def test_repeats_alternate_in_direction(settings: Settings, store: Store, control: Control) -> None:
    bench(settings, store, control)
    order = [key for key, _ in control.calls[:6]]
    methods = {row.key: row.request.drafter.method for row in store.evaluations.list(limit=None)}
    expected = ["none", "prompt-lookup", "token-recycling"]
    assert [methods[key] for key in order] == expected + expected[::-1]


def test_the_same_session_is_answered_from_the_store_and_a_new_one_measured(
    settings: Settings, store: Store, control: Control
) -> None:
    bench(settings, store, control)
    again = bench(settings, store, control)
    assert again.num_evaluated == 0
    assert again.num_memoised == 12
    other = bench(settings, store, control, GRID.model_copy(update={"session": "two"}))
    assert other.num_evaluated == 12


def test_differing_outputs_are_judged_by_the_gap_where_they_part(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "differ").write_text(f"{WRONG}=0.5 {TIED}=0.0001")
    lines: list[str] = []
    grid = GRID.model_copy(update={"domains": ("translation",)})
    report = bench(settings, store, control, grid, log=lines.append)
    # Two repeats of three methods, and one look at the gaps of the two items.
    assert report.num_evaluated == 2 * 3 + 1
    plain, *methods = (cell.certificate for cell in report.cells)
    assert plain is not None
    assert (plain.num_identical, plain.differences) == (8, ())
    for found in methods:
        assert found is not None
        assert (found.num_identical, found.num_ties, found.num_defects) == (6, 1, 1)
        assert (found.level, found.tie_gap) == ("defect", 1e-3)
        where = {"position": 7, "expected_token": 7, "token": 99}
        assert found.differences == (
            CellDifference(item_id=TIED, gap=0.0001, kind="tie", **where),
            CellDifference(item_id=WRONG, gap=0.5, kind="defect", **where),
        )
    assert "translation: 2 outputs differ, looking at their logit gaps" in lines
    (looked,) = [row for role, _, row in store.runs.evaluations(report.run_id) if role == "gaps"]
    assert looked.request.drafter.method == "none"
    assert looked.request.item_ids == (TIED, WRONG)
    assert looked.request.record_gaps
    assert not looked.request.is_timed
    assert store.benchmarks.list(run_id=report.run_id) == list(report.cells)
    view = difference_table(report)
    parts = ("translation", "prompt-lookup", WRONG, "7", "7", "99", "0.500000", "defect")
    assert view.rows[1] == parts
    assert cell_table(report).rows[1][-1] == "6/8 (1 tie, 1 defect)"
    assert headline(report).endswith("2 outputs differ beyond what rounding explains")
    assert report.is_good
    asked = grid.model_copy(update={"verify": True})
    strict = bench(settings, store, control, asked)
    assert not strict.is_good
    assert headline(strict) == "NOT PROVEN: 2 of 3 cells"


def test_differences_without_gaps_to_judge_by_are_unknown(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "differ").write_text(f"{TIED}=0.0001")
    (control.folder / "raise-gaps").touch()
    grid = GRID.model_copy(update={"domains": ("translation",), "verify": True})
    report = bench(settings, store, control, grid)
    found = report.cells[1].certificate
    assert found is not None
    assert (found.num_identical, found.num_ties, found.num_defects) == (7, 0, 0)
    assert found.differences[0].kind == "unknown"
    assert found.level == "unproven"
    assert not report.is_good


def test_ties_are_no_failure_of_a_proof(settings: Settings, store: Store, control: Control) -> None:
    (control.folder / "differ").write_text(f"{TIED}=0.0001")
    grid = GRID.model_copy(update={"domains": ("translation",), "verify": True})
    report = bench(settings, store, control, grid)
    assert [cell.certificate.level for cell in report.cells if cell.certificate] == [
        "up-to-ties"
    ] * 3
    assert report.is_good


def test_methods_are_pooled_over_domains_and_plotted(
    settings: Settings, store: Store, control: Control
) -> None:
    report = bench(settings, store, control)
    plain, lookup, _ = report.overall
    assert (plain.drafter, plain.num_rows, plain.mean_speedup) == ("none", 2, None)
    assert lookup.mean_speedup is not None
    assert lookup.mean_speedup.estimate == pytest.approx(2.0)
    # 16 items, 24 tokens after the first in 12 steps each.
    assert (lookup.figures.num_items, lookup.figures.num_steps) == (16, 192)
    assert lookup.figures.acceptance_length == pytest.approx(2.0)
    names = {Path(path).name for path in report.plots}
    assert names == {"speedup.png", "acceptance-by-position.png", "run-time.png"}
    assert all(Path(path).read_bytes().startswith(b"\x89PNG") for path in report.plots)
    run = store.runs.get(report.run_id)
    assert run is not None
    metrics = report_metrics(run.summary)
    assert metrics["mean_speedup_estimate/prompt-lookup"] == pytest.approx(2.0)
    assert metrics["num_regressions"] == 0


def test_a_suite_that_is_named_is_a_row_of_its_own_and_categories_are_split(
    settings: Settings, store: Store, control: Control
) -> None:
    domains = ("chat@builtin", "chat", "chat@builtin#even", "chat@builtin#*")
    grid = GRID.model_copy(update={"domains": domains, "methods": ("prompt-lookup",)})
    report = bench(settings, store, control, grid)
    rows = list(dict.fromkeys(cell.domain for cell in report.cells))
    assert rows == ["chat@builtin", "chat", "chat@builtin#even", "chat@builtin#odd"]
    assert report.notes == ("chat@builtin#*: chat@builtin#even is a row already",)
    odd = report.cells[-1].samples
    assert {int(sample.item_id[-1]) % 2 for sample in odd} == {1}


def test_packaged_prompts_that_stand_in_are_called_so_and_measured_once(
    settings: Settings, store: Store, control: Control
) -> None:
    grid = GRID.model_copy(update={"domains": ("math@spec_bench", "math@gsm8k")})
    report = bench(settings, store, control, grid)
    assert {cell.domain for cell in report.cells} == {"math@builtin"}
    assert report.notes == (
        "math@spec_bench: the suite is not here, packaged prompts of its domain stood in",
        "math@gsm8k: the suite is not here, packaged prompts of its domain stood in",
        "math@gsm8k: math@builtin is a row already",
    )


def test_two_suites_under_one_name_are_refused(settings: Settings) -> None:
    def of_suite(
        target: str, domain: str, suite: str | None, dtype: str, settings: Settings
    ) -> Workload:
        whole = workload(target, domain, suite, dtype, settings)
        items = whole.suite.items[:20] if suite == "/b/own.jsonl" else whole.suite.items
        return replace(whole, suite=Suite.of("own", domain, items, str(suite)))

    names = ("translation@/a/own.jsonl", "translation@/b/own.jsonl")
    grid = GRID.model_copy(update={"domains": names})
    with pytest.raises(ConfigError, match=r"/a/own.jsonl and /b/own.jsonl are other prompts"):
        make_grid(grid, settings, of_suite)
    same = make_grid(grid.model_copy(update={"domains": names[:1] * 2}), settings, of_suite)
    assert (len(same.rows), len(same.notes)) == (1, 1)


def test_outputs_of_another_length_are_left_out_of_the_speedup_with_a_note(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "short").write_text(TIED)
    grid = GRID.model_copy(update={"domains": ("translation",), "methods": ("prompt-lookup",)})
    report = bench(settings, store, control, grid)
    figures = report.cells[1].figures
    assert figures is not None
    assert figures.num_paired == 7
    (note,) = report.notes
    assert note.startswith("translation, prompt-lookup: 1 of 8 items are not in the speed-up")


def test_a_failing_cell_has_its_reason_and_no_figures(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "raise").write_text("2")
    report = bench(settings, store, control, GRID.model_copy(update={"skip": "2"}))
    assert {cell.status for cell in report.cells} == {"failed"}
    assert report.cells[0].error == "ValueError: 2 is broken"


def test_what_failed_is_tried_again_by_the_next_run_of_the_session(
    settings: Settings, store: Store, control: Control
) -> None:
    sparse = GRID.model_copy(update={"skip": "2", "baseline": "nightly"})
    (control.folder / "raise").write_text("2")
    failed = bench(settings, store, control, sparse)
    assert failed.notes == ("6 cells failed: this run did not become baseline 'nightly'",)
    (control.folder / "raise").unlink()
    report = bench(settings, store, control, sparse)
    assert {cell.status for cell in report.cells} == {"done"}
    assert report.notes == ("baseline 'nightly' is this run",)


def test_a_sparse_target_is_measured_with_the_prefill_asked_for(
    settings: Settings, store: Store, control: Control
) -> None:
    sparse = GRID.model_copy(update={"skip": "2", "baseline": "nightly"})
    first = bench(settings, store, control, sparse)
    dense = sparse.model_copy(update={"prefill": "dense"})
    report = bench(settings, store, control, dense)
    assert report.num_memoised == 0  # another way to read prompts is another evaluation
    for cell in report.cells:
        for key in (cell.evaluation_key, cell.baseline_key):
            row = store.evaluations.row(key or "")
            assert row is not None
            assert (row.request.skip, row.request.prefill) == ("2", "dense")
    assert report.notes == ("baseline 'nightly' read prompts with other prefill: name another one",)
    assert report.baseline_run_id == first.run_id
    again = bench(settings, store, control, dense.model_copy(update={"baseline": "dense"}))
    assert again.num_evaluated == 0


def test_the_first_run_becomes_the_baseline_and_identical_data_never_alarms(
    settings: Settings, store: Store, control: Control
) -> None:
    nightly = GRID.model_copy(update={"baseline": "nightly"})
    first = bench(settings, store, control, nightly)
    assert first.notes == ("baseline 'nightly' is this run",)
    second = bench(settings, store, control, nightly.model_copy(update={"session": "two"}))
    assert second.baseline_run_id == first.run_id
    assert second.regressions == ()
    assert second.notes == ()


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"domains": ("transaltion",)}, ConfigError, "did you mean"),
        ({"num_items": 99}, DataError, "has 40 items, 99 were asked for"),
        ({"skip": "9"}, ConfigError, "layers 0 to 5"),
    ],
)
def test_wrong_grids_are_refused_before_anything_is_stored(
    settings: Settings,
    store: Store,
    control: Control,
    changes: dict[str, object],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        bench(settings, store, control, GRID.model_copy(update=changes))
    assert store.runs.list() == []


def test_methods_are_canonical_and_none_is_implied() -> None:
    config = BenchmarkConfig(methods=("none", "token-recycling:num_nodes=80", "token-recycling"))
    assert config.methods == ("token-recycling",)
