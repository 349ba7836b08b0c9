"""Trainings and comparisons as tables, pages and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from db.store import Store
from db.training import TrainingPoint
from flows.commands.execute import execute
from flows.commands.results import find_run
from flows.loss_tables import (
    loss_markdown,
    loss_tables,
    setting_table,
    training_list,
)
from flows.training_tables import depth_table, summary_table, training_markdown
from specdec_core.config.settings import Settings
from specdec_core.config.training import MedusaDraft
from specdec_core.config.training_run import training_config
from tasks.loss_compose import compare_arms
from tasks.loss_report import LossReport
from tasks.training_report import headline
from tests.integration import store_examples
from tests.unit.flows import training_examples as examples


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run_id() -> str:
    with Store.open(Settings().resolved_database_url) as store:
        return examples.seed_training(store).run_id


def test_expected_and_realised_stand_side_by_side() -> None:
    report = examples.training_report("r", store_examples.checkpoint("r", id=1))
    records = depth_table(report).to_records()
    assert records[0] == {
        "depth": "1",
        "expected, validation": "75.0%",
        "expected at the steps": "75.0%",
        "realised": "70.0%",
        "gap": "-5.0%",
    }
    text = training_markdown(report)
    for part in (
        "expected acceptance length 1.150 before, 2.200 after 50 steps (sampling)",
        "1.250x [1.100, 1.400]",
        "one remark",
    ):
        assert part in text, part


def test_a_comparison_reads_as_a_section() -> None:
    report = examples.loss_report()
    assert [name for name, _ in loss_tables(report)] == [
        "trainings",
        "rates",
        "chain-t1",
        "changes",
    ]
    kl, wtv = setting_table(report, "chain", 1.0).rows
    # One seed: no deviation; one prompt: the interval is a point.
    assert kl == ("kl", "0.500", "0.500", "0.500 [0.500, 0.500]", "0/0.5/1")
    assert wtv[1:3] == ("1.000", "1.000")
    (row,) = dict(loss_tables(report))["changes"].to_records()
    assert row["accepted tokens"] == "+100.0% [+100.0%, +100.0%]"
    # With the bonus token: 2 tokens a step against 1.5.
    assert row["with bonus"] == "+33.3% [+33.3%, +33.3%]"
    assert row["reads"] == "too few prompts"
    text = loss_markdown(report)
    assert "peak rate of one of 0.0001, 0.001, chosen per loss" in text
    assert "is trained for 6 epochs on the target's responses" in text
    assert "loss is nan" in text
    rates = dict(loss_tables(report))["rates"].to_records()
    assert [each["step"] for each in rates] == ["0 (its start: no step was better)", "-"]


@pytest.mark.parametrize(
    ("num_epochs", "ends", "said"),
    [
        (1, [], "1 epoch on"),
        (2, [(44, 1), (88, 1)], "2 epochs on"),
        # 44 steps an epoch.
        (3, [(44, 1), (88, 1), (132, 2)], "3 epochs, the last 1 under the second loss where"),
        (6, [(132, 1), (264, 2)], "6 epochs, the last 3 under the second loss where"),
    ],
)
def test_the_set_up_says_how_long_was_trained(
    num_epochs: int, ends: list[tuple[int, int]], said: str
) -> None:
    """A report that was stored says it too, whatever the defaults of its parameters are then."""
    report = examples.loss_report()
    curve = tuple(TrainingPoint(step=step, phase=phase) for step, phase in [(0, 1), *ends])
    made = report.model_copy(
        update={
            "config": training_config(None, {"losses": ["kl", "wtv"], "num_epochs": num_epochs}),
            "trainings": (
                report.trainings[0].model_copy(update={"curve": ()}),  # failed
                report.trainings[1].model_copy(update={"curve": curve}),
            ),
        }
    )
    stored = LossReport.model_validate(made.model_dump(mode="json"))
    assert f"is trained for {said}" in loss_markdown(stored)


def test_pairs_that_no_other_table_has_are_listed_apart() -> None:
    arms = {(loss, 0): examples.evaluation((1, 0)) for loss in ("start", "kl", "wtv", "ce")}
    cells, changes, _ = compare_arms(arms)
    report = examples.loss_report().model_copy(update={"cells": cells, "changes": changes})
    pairs = {
        name: [(row["loss"], row["against"]) for row in view.to_records()]
        for name, view in loss_tables(report)
        if name in ("start", "changes", "pairs")
    }
    assert pairs == {
        "start": [("kl", "start"), ("wtv", "start"), ("ce", "start")],
        "changes": [("wtv", "kl"), ("ce", "kl")],
        "pairs": [("ce", "wtv")],
    }


def test_trainings_that_keep_their_start_say_so_and_count_as_one() -> None:
    report = examples.loss_report()
    kl, wtv = report.trainings
    # Validated at steps 0 and 50: 1.75 and 2.125 under sampling, - and 2.0 greedy.
    start = {"criterion": "sampling", "start_length": 1.75, "best_length": 1.75, "best_step": 0}
    seeds = [kl.model_copy(update={**start, "seed": seed}) for seed in (0, 1)]
    better = {"criterion": "greedy", "best_length": 2.0, "best_step": 50}
    seeds.append(wtv.model_copy(update=better))
    report = report.model_copy(update={"trainings": tuple(seeds)})
    first, second, last = training_list(report).to_records()
    assert (first["kept"], first["last"]) == ("1.750", "2.125")
    assert first["step"] == second["step"] == "0 (its start: no step was better)"
    assert (last["kept"], last["last"], last["step"]) == ("2.000", "2.000", "50")
    note = (
        "kl: no step was better than the start on validation data in 2 of 2 seeds: it has the "
        "start's figures there; these 2 seeds are one draft and count as one"
    )
    assert report.all_notes == (note,)
    assert f"- {note}" in loss_markdown(report)
    # A head is drawn from the seed: two of them are two drafts.
    train = report.config.base.train.model_copy(update={"draft": MedusaDraft()})
    base = report.config.base.model_copy(update={"train": train})
    config = report.config.model_copy(update={"base": base})
    (said,) = report.model_copy(update={"config": config}).all_notes
    assert said.endswith("it has the start's figures there")


def test_a_training_that_keeps_its_start_says_so() -> None:
    report = examples.training_report("r", store_examples.checkpoint("r", id=1))
    found = report.outcome.model_copy(update={"best": report.outcome.start})
    rows = dict(summary_table(report.model_copy(update={"outcome": found})).rows)
    kept = rows["the same of the checkpoint kept"]
    assert kept == "1.150 at step 0 (its start: no step was better)"
    assert rows["the same at the last step"] == "2.200"
    said = headline("pruned", "wtv", found, report.checkpoint)
    assert "expected acceptance length 1.150 before, and no step was better (sampling)" in said


def test_a_training_is_exported_without_places_of_this_machine(
    run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["runs", "export", run_id, "--to", str(tmp_path / "out")]) == 0
    (document,) = (tmp_path / "out").glob("*.json")
    found = json.loads(document.read_text())
    assert (found["training"], found["hardware"]) == ("wtv", "test cpu, 2 threads")
    assert found["figures"]["origin"]["data_key"] == "d" * 64
    assert "/home/me" not in document.read_text()
    assert {path.name for path in (tmp_path / "out").rglob("*.png")} == {"curve.png", "depth.png"}
    capsys.readouterr()
    assert execute(["runs", "show", run_id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "train-drafter"


def test_an_export_is_not_written_over_that_of_another_run(
    run_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(Settings().resolved_database_url) as store:
        stored = store.runs.get(run_id)
        assert stored is not None
        # The same name, other data.
        other = store_examples.make_run(store, kind=stored.kind, name=stored.name)
        summary = stored.summary | {
            "run_id": other.id,
            "data": {**stored.summary["data"], "key": "e"},
        }
        store.runs.update(other.id, status="completed", summary=summary)
    out = ["--to", str(tmp_path / "out")]
    assert execute(["runs", "export", run_id, *out]) == 0
    (path,) = (tmp_path / "out").glob("*.json")
    before = path.read_text()
    assert json.loads(before)["run_id"] == run_id
    capsys.readouterr()
    assert execute(["runs", "export", other.id, *out]) == 2
    said = capsys.readouterr().err
    assert f"{path} is the export of {run_id}, and run {other.id} has the same name" in said
    assert path.read_text() == before
    assert execute(["runs", "export", run_id, *out]) == 0

    # As older versions wrote them: without the run, known by what was asked for.
    document = json.loads(before)
    del document["run_id"]
    path.write_text(json.dumps(document))
    assert execute(["runs", "export", run_id, *out]) == 0
    document["figures"]["config"]["train"]["num_epochs"] = 77
    path.write_text(json.dumps(document))
    assert execute(["runs", "export", run_id, *out]) == 2
    assert "is the export of a run with another configuration" in capsys.readouterr().err
    path.write_text("[]")
    assert execute(["runs", "export", run_id, *out]) == 2
    assert "is no export of a run: remove it" in capsys.readouterr().err
    for flag in ("--to", "--tables", "--plots"):
        assert execute(["runs", "export", run_id, flag, ""]) == 2
        assert f"{flag} is empty: name a path" in capsys.readouterr().err


def test_a_note_of_a_training_is_shown_without_places_of_this_machine(tmp_path: Path) -> None:
    with Store.open(Settings().resolved_database_url) as store:
        report = examples.seed_training(store)
        noted = report.model_copy(update={"notes": ("not exported: /home/me/drafts/x is full",)})
        store.runs.update(report.run_id, summary=noted.model_dump(mode="json"))
    assert "- not exported: /home/me/drafts/x is full" in training_markdown(noted)
    assert execute(["runs", "export", report.run_id, "--to", str(tmp_path)]) == 0
    (page,) = tmp_path.glob("*.md")
    assert "- not exported: x is full" in page.read_text()


def test_a_comparison_is_exported_with_its_plots(tmp_path: Path) -> None:
    with Store.open(Settings().resolved_database_url) as store:
        run = store_examples.make_run(store, kind="compare-losses", name="kl wtv")
        summary = examples.loss_report(run.id).model_dump(mode="json")
        store.runs.update(run.id, status="completed", summary=summary)
    assert execute(["runs", "export", run.id, "--to", str(tmp_path / "out")]) == 0
    (page,) = (tmp_path / "out").glob("*.md")
    assert "Paired changes against kl" in page.read_text()
    plots = {path.name for path in (tmp_path / "out").rglob("*.png")}
    assert plots == {"curves.png", "changes.png"}
    (document,) = (tmp_path / "out").glob("*.json")
    kl, wtv = json.loads(document.read_text())["figures"]["curves"]
    assert (kl["loss"], kl["seed"], wtv["loss"]) == ("kl", 0, "wtv")
    lengths = {"steps": [0, 50], "greedy": [None, 2.0], "sampling": [1.75, 2.125]}
    assert {name: kl[name] for name in lengths} == lengths


def test_a_flow_run_of_a_comparison_is_shown_as_one(run_id: str) -> None:
    settings = Settings()
    with Store.open(settings.resolved_database_url) as store:
        whole = store_examples.make_run(store, kind="compare-losses", flow_run_id="1f")
        store_examples.make_run(store, kind="train-drafter", flow_run_id="1f")
    found = [find_run(settings, flow_run_id) for flow_run_id in ("1f", "0f", "2f")]
    assert [each and each.id for each in found] == [whole.id, run_id, None]


def test_drafts_are_listed_and_shown(run_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["drafts", "list", "--kind", "pruned", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["id"], found["run_id"], found["state"]) == (1, run_id, "validated")
    assert execute(["drafts", "list", "--state", "rejected", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert execute(["drafts", "list"]) == 0
    assert "2.250" in capsys.readouterr().out
    assert execute(["drafts", "show", "1", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["evaluation"]["notes"] == ["one remark"]
    assert [point["step"] for point in shown["curve"]] == [0, 50]
    assert execute(["drafts", "show", "1"]) == 0
    assert "70.0%" in capsys.readouterr().out
    for number in ("7", str(10**22)):
        assert execute(["drafts", "show", number]) == 1
        assert f"there is no checkpoint {number}" in capsys.readouterr().err


def test_a_loss_may_be_written_as_it_is_given_to_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Store.open(Settings().resolved_database_url) as store:
        run = store_examples.make_run(store)
        for key, loss in (("1", "kl+0.1eal"), ("2", "wtv/wtv+0.1grpo")):
            store.trainings.put(store_examples.training(run.id, key=key, loss=loss))
            store.checkpoints.register(
                store_examples.checkpoint(run.id, content_hash=key, training_key=key, loss=loss)
            )
    # The name of the preset, and weights that are written otherwise.
    for given, number in (("kl+eal", 1), ("kl+0.10eal", 1), ("wtv/1.0wtv+0.1grpo", 2)):
        assert execute(["drafts", "list", "--loss", given, "--json"]) == 0
        assert [one["id"] for one in json.loads(capsys.readouterr().out)] == [number]
    assert execute(["drafts", "list", "--loss", "magic"]) == 2
    assert "'magic' in 'magic' is unknown" in capsys.readouterr().err


def test_wrong_trainings_are_refused_as_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    for words, reason in (
        (["train", "oak"], "preset 'oak' is unknown"),
        (["train", "--draft", "oak"], "draft 'oak' is not valid"),
        (["train", "--losses", "kl,magic"], "'magic' is unknown"),
        (["train", "--num-prompts", "many"], "num_prompts='many' is not valid"),
    ):
        assert execute(words) == 2
        assert reason in capsys.readouterr().err
