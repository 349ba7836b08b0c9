"""Stored searches and sweeps as files: what is in them, and what of this machine is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from db.store import Store
from flows.commands.execute import execute
from flows.exports import local_places, portable, write_run_files
from specdec_core.config.search import CompareConfig, SensitivityConfig
from specdec_core.config.settings import Settings
from tasks.pool import pool_factory
from tasks.search import run_search
from tasks.sweep import run_sweep
from tests.table_evaluator import TableEvaluator, config, workload


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(Settings().resolved_database_url) as opened:
        yield opened


@pytest.fixture
def common(store: Store, tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "control").mkdir()
    start = pool_factory(Settings(), TableEvaluator(tmp_path / "control"), is_inline=True)
    return {
        "settings": Settings(),
        "store": store,
        "start_pool": start,
        "prepare_workload": workload,
        "write_files": write_run_files,
    }


def search(common: dict[str, Any], **changes: object) -> str:
    return run_search(config(**changes), **common).run_id


def exported(run_ids: list[str], folder: Path) -> dict[str, Any]:
    """The JSON documents that an export writes, by stem."""
    assert execute(["runs", "export", *run_ids, "--to", str(folder)]) == 0
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def rows(table: dict[str, Any]) -> list[dict[str, str]]:
    return [dict(zip(table["columns"], row.split(" | "), strict=True)) for row in table["rows"]]


def test_a_search_is_exported_with_results_cases_units_and_plots(
    common: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    documents = exported([search(common)], out)
    (document,) = documents.values()
    assert list(documents) == ["tss-search-translation-table"]
    assert (document["search"], document["kind"]) == ("translation", "tss-search")
    assert document["hardware"] == "table"
    figures = document["figures"]
    dense, sparse = rows(figures["tables"]["results"])
    # 24 tokens after the first: 12 steps of dense, 9 of blocks 2 and 3 left out.
    assert (dense["skip"], dense["acceptance"], sparse["skip"]) == ("dense", "2.000", "2,3")
    assert (sparse["acceptance"], sparse["sparsity"]) == ("2.667", "33.3%")
    assert sparse["acceptance change"].startswith("+33.3% [")
    (cases,) = rows(figures["tables"]["cases"])
    # Blocks 2 and 3 add .03 to the score of every item.
    assert (cases["items"], cases["better"], cases["same"], cases["worse"]) == (
        "20",
        "20",
        "0",
        "0",
    )
    units = rows(figures["tables"]["single units"])
    assert [row["skip"] for row in units] == ["dense", "1", "2", "3", "4"]
    assert {(row["output tokens"], row["stop rate"]) for row in units} == {("25.0", "100.0%")}
    assert figures["heldout"]["num_items"] == 20
    assert len(figures["cases"]) == 2
    folder = out / "tss-search-translation-table"
    assert {path.name for path in folder.iterdir()} == {"ablation.png", "pareto.png", "heldout.png"}
    text = folder.with_suffix(".md").read_text()
    for expected in ("Dense and sparse answers", "### Level 2", f"![pareto]({folder.name}/pareto"):
        assert expected in text


def test_a_comparison_and_a_sweep_are_exported_with_their_tables(
    common: dict[str, Any], tmp_path: Path
) -> None:
    compared = run_sweep(CompareConfig(search=config(), strategies=("tss", "sleb")), **common)
    swept = run_sweep(SensitivityConfig(search=config(), tolerances=(0.05, -0.5)), **common)
    documents = exported([compared.run_id, swept.run_id], tmp_path)
    tables = documents["tss-compare-translation-table"]["figures"]["tables"]
    answers = rows(tables["answers"])
    assert [row["strategy"] for row in answers] == ["-", "tss", "sleb"]
    assert answers[1]["skip"] == "2,3"
    assert [row["strategy"] for row in rows(tables["changes"])] == ["tss", "sleb"]
    sensitivity = documents["tss-sensitivity-translation-table"]["figures"]
    found = rows(sensitivity["tables"]["answers"])
    assert [row["tolerance"] for row in found] == ["-", "base", "+5%", "-50%"]
    assert [int(row["evaluations"]) for row in found[1:]] == [
        variant["num_evaluations"] for variant in sensitivity["variants"]
    ]
    assert (tmp_path / "tss-compare-translation-table" / "heldout.png").is_file()


def test_files_of_a_run_are_those_that_an_export_writes(
    common: dict[str, Any], home: Path, tmp_path: Path
) -> None:
    run_id = search(common)
    folder = home / "runs" / run_id
    exported([run_id], tmp_path)
    whole = tmp_path / "tss-search-translation-table.json"
    assert (folder / "report.json").read_text() == whole.read_text()
    assert "![pareto](pareto.png)" in (folder / "report.md").read_text()


def test_no_file_names_a_place_of_this_machine(
    common: dict[str, Any], tmp_path: Path, home: Path
) -> None:
    run_id = search(common, target="path:/secret/models/tiny", suite="/secret/data/mails.jsonl")
    (document,) = exported([run_id], tmp_path / "out").values()
    assert document["figures"]["config"]["target"] == "path:tiny"
    assert document["figures"]["config"]["suite"] == "mails.jsonl"
    files = [path for path in (tmp_path / "out").rglob("*") if path.suffix in {".json", ".md"}]
    assert len(files) == 2
    for path in files:
        assert "/secret" not in path.read_text()
        assert str(home) not in path.read_text()


def test_paths_are_found_behind_references_and_options_and_nowhere_else() -> None:
    given = {
        "target": "path:/a/b/model",
        "drafter": "rest:datastore=/c/store,num_tokens=3",
        "domains": ["chat@/d/e.jsonl#x", "hf:org/name", "and/or", "https://f.g/h", "/i"],
    }
    places = local_places(given)
    assert set(places) == {"/a/b/model", "/c/store", "/d/e.jsonl"}
    assert portable(given, places) == {
        "target": "path:model",
        "drafter": "rest:datastore=store,num_tokens=3",
        "domains": ["chat@e.jsonl#x", "hf:org/name", "and/or", "https://f.g/h", "/i"],
    }


def test_two_runs_of_one_name_are_not_written_over_each_other(
    common: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [search(common), search(common)]
    assert execute(["runs", "export", *ids, "--to", str(tmp_path)]) == 2
    assert "would be written as 'tss-search-translation-table'" in capsys.readouterr().err
    assert execute(["runs", "export", *ids, "--tables", str(tmp_path / "t.json")]) == 2
    assert "take one run" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))


def test_searches_are_compared_in_one_table_and_one_figure(
    common: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [search(common), search(common, domain="qa")]
    capsys.readouterr()
    argv = ["runs", "compare", *ids, "--to", str(tmp_path), "--name", "domains", "--json"]
    assert execute(argv) == 0
    answer = json.loads(capsys.readouterr().out)
    results = answer["tables"]["Results on held-out items"]
    assert [(row["domain"], row["skip"]) for row in results] == [
        ("translation", "dense"),
        ("translation", "2,3"),
        ("qa", "dense"),
        ("qa", "2,3"),
    ]
    units = answer["tables"]["Single units of path:/table: change against dense on selection items"]
    # Block 2 alone takes 10 steps instead of 12.
    assert units[1]["unit"] == "2"
    assert units[1]["translation: acceptance"] == units[1]["qa: acceptance"] == "+20.0%"
    names = [Path(path).name for path in answer["files"]]
    assert names == ["domains.json", "domains.md", "ablation.png", "heldout.png"]
    document = json.loads((tmp_path / "domains.json").read_text())
    assert document["run_ids"] == ids
    assert "path:/table" not in json.dumps(document["tables"]["results"])


def test_files_that_cannot_be_written_do_not_cost_the_result(
    common: dict[str, Any], home: Path, caplog: pytest.LogCaptureFixture, store: Store
) -> None:
    home.mkdir(exist_ok=True)
    (home / "runs").write_text("a file is in the way")
    run_id = search(common)
    run = store.runs.get(run_id)
    assert run is not None
    assert run.status == "completed"
    assert f"files of run {run_id} are not all written" in caplog.text


def test_a_fault_in_drawing_files_does_not_cost_the_result(
    common: dict[str, Any], caplog: pytest.LogCaptureFixture, store: Store
) -> None:
    def draw(*_: object) -> None:
        raise ZeroDivisionError("no place for a bar")

    run = store.runs.get(search(common | {"write_files": draw}))
    assert run is not None
    assert (run.status, run.error) == ("completed", None)
    assert "ZeroDivisionError: no place for a bar" in caplog.text
