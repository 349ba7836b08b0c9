"""A stored benchmark as files: tables and plots, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from db.cells import CellFigures
from db.store import Store
from flows.commands.execute import execute
from specdec_core.config.presets import benchmark_config
from specdec_core.config.settings import Settings
from tasks.benchmark_report import BenchmarkReport, MethodOverall
from tests.integration import store_examples as examples


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run_id() -> str:
    """A finished benchmark of two widths."""
    with Store.open(Settings().resolved_database_url) as store:
        provenance = {"commit": "0123abcd", "host": "secret", "command": "/home/me/run"}
        run = examples.make_run(store, kind="benchmark", name="ptd-ablation", provenance=provenance)
        store.runs.update(run.id, status="completed", summary=_report(run.id))
    return run.id


def _report(run_id: str) -> dict[str, object]:
    figures = CellFigures(
        num_items=1,
        num_tokens=9,
        num_steps=4,
        acceptance_length=2.0,
        decoding_efficiency=2.0,
        hit_rate=0.5,
        acceptance_length_on_hits=3.0,
        drafting_nodes_per_step=10.0,
        candidate_nodes_per_step=2.5,
        tokens_per_s=72.0,
    )
    methods = ("ptd:width=2", "ptd:width=3")
    return BenchmarkReport(
        run_id=run_id,
        config=benchmark_config({"preset": "ptd-ablation"}),
        cells=tuple(examples.cell(run_id, drafter=name, figures=figures) for name in methods),
        overall=tuple(
            MethodOverall(
                drafter=name,
                level="exact",
                num_rows=1,
                figures=figures,
                mean_speedup=examples.heldout().speedup,
            )
            for name in methods
        ),
        notes=("one remark",),
        num_evaluated=2,
        num_memoised=0,
    ).model_dump(mode="json", exclude={"cells": {"__all__": {"samples"}}})


def test_tables_and_plots_are_written_where_asked(
    run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, plots = tmp_path / "new" / "ptd.json", tmp_path / "plots"
    argv = ["runs", "export", run_id, "--tables", str(tables), "--plots", str(plots), "--json"]
    assert execute(argv) == 0
    answer = json.loads(capsys.readouterr().out)
    names = ["speedup", "acceptance-by-position", "run-time", "ablation-width"]
    drawn = [plots / f"{name}.png" for name in names]
    assert answer == {"run_ids": [run_id], "files": [str(path) for path in (tables, *drawn)]}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    document = json.loads(tables.read_text())
    assert document["benchmark"] == "ptd-ablation"
    assert document["figures"]["notes"] == ["one remark"]
    width = document["figures"]["tables"]["Ablation: width w of the draft trees"]
    assert width["columns"][:5] == [
        "width",
        "hit rate (HR)",
        "length on hits (AL)",
        "efficiency (DE)",
        "nodes/step",
    ]
    assert [row.split(" | ")[:5] for row in width["rows"]] == [
        ["2", "50.0%", "3.000", "2.000", "12.5"],
        ["3", "50.0%", "3.000", "2.000", "12.5"],
    ]
    assert not list(tables.parent.glob("*.part"))


def test_one_run_may_be_given_another_name(
    run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    argv = ["runs", "export", run_id, "--to", str(out), "--name", "Four drafters"]
    assert execute(argv) == 0
    assert {path.name for path in out.iterdir()} == {
        "four-drafters",
        "four-drafters.json",
        "four-drafters.md",
    }
    assert "](four-drafters/speedup.png)" in (out / "four-drafters.md").read_text()
    assert execute([*argv[:2], run_id, *argv[2:]]) == 2
    assert "give one run" in capsys.readouterr().err


def test_what_is_exported_says_nothing_about_the_machine_it_ran_on(
    run_id: str, tmp_path: Path
) -> None:
    assert execute(["runs", "export", run_id, "--tables", str(tmp_path / "t.json")]) == 0
    provenance = json.loads((tmp_path / "t.json").read_text())["provenance"]
    assert provenance["commit"] == "0123abcd"
    assert not {"host", "command", "pid"} & set(provenance)


@pytest.mark.parametrize(
    ("flag", "place", "said"),
    [
        ("--to", "file", r"folder .*/file/benchmark-\S+ cannot be made \(Not a directory\)"),
        ("--plots", "file", r"folder .*/file cannot be made \(File exists\): name one that"),
        ("--tables", "file/t.json", r"folder .*/file cannot be made \(File exists\): name one"),
        ("--tables", "folder", r"/folder is a folder: name a file"),
    ],
)
def test_a_place_that_cannot_hold_an_export_is_refused_in_words(
    run_id: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flag: str,
    place: str,
    said: str,
) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    assert execute(["runs", "export", run_id, flag, str(tmp_path / place)]) == 2
    assert re.search(said, capsys.readouterr().err)
    assert (tmp_path / "file").read_text() == "mine"
    assert not list(tmp_path.rglob("*.part"))


def test_an_export_of_nothing_is_wrong_usage(
    run_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["runs", "export", run_id]) == 2
    assert "give --to FOLDER, --tables FILE or --plots FOLDER" in capsys.readouterr().err


def test_runs_without_a_result_or_of_another_kind_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(Settings().resolved_database_url) as store:
        running = examples.make_run(store, kind="benchmark")
        search = examples.make_run(store, kind="tss-search")
        store.runs.update(search.id, status="completed", summary={"headline": "found"})
    target = ["--tables", str(tmp_path / "t.json")]
    assert execute(["runs", "export", running.id, *target]) == 2
    assert "is running, and only completed ones have a result" in capsys.readouterr().err
    assert execute(["runs", "export", search.id, *target]) == 2
    assert "is a tss-search run without the report of a search" in capsys.readouterr().err
    assert execute(["runs", "export", "none", *target]) == 1
    assert "there is no run 'none'" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()
