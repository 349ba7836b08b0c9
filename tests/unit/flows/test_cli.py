"""The command line: flags, exit codes and output for machines."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from flows.commands.execute import execute
from flows.commands.options import given_flags, parse_assignments
from flows.commands.parser import build_parser
from specdec_core.config.search import SearchConfig
from specdec_core.errors import ConfigError
from specdec_core.models.tiny import write_tiny_checkpoint

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPECDEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from flows.commands.parser import build_parser; build_parser().format_help(); "
        "heavy = {'torch', 'ray', 'prefect', 'mlflow', 'sqlalchemy', 'transformers', 'optuna'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_every_field_of_a_search_has_a_flag() -> None:
    switches = {"protect_ends", "activate", "bound"}
    flags = {name: "1" for name in SearchConfig.model_fields if name not in {"domain", *switches}}
    argv = [
        part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    args = build_parser().parse_args(
        ["search", "qa", *argv, "--no-protect-ends", "--no-activate", "--bound"]
    )
    given = given_flags(args, SearchConfig, {"domain"})
    assert given == {**flags, "protect_ends": False, "activate": False, "bound": True}


def test_absent_flags_are_not_given() -> None:
    args = build_parser().parse_args(["search", "qa", "--tolerance", "-0.05"])
    assert given_flags(args, SearchConfig, {"domain"}) == {"tolerance": "-0.05"}


def test_help_states_range_and_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        execute(["search", "--help"])
    assert left.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--max-new-tokens N longest output, tokens; range 1..4096; default 48" in text


@pytest.mark.parametrize("argv", [[], ["sing"], ["profiles"], ["profiles", "show", "x"]])
def test_wrong_usage_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(argv) == 2
    error = capsys.readouterr().err
    assert "usage: specdec" in error
    assert "error: specdec" in error


def test_wrong_usage_is_told_to_machines_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["profiles", "show", "x", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"] == {
        "type": "ConfigError",
        "message": "specdec profiles show: argument id: invalid int value: 'x'",
    }


def test_bad_input_is_exit_code_2_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["search", "translatoin"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: domain 'translatoin' is unknown: did you mean")


def test_failure_is_exit_code_1_and_json_for_machines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert execute(["profiles", "resolve", "--target", "t", "--domain", "qa", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["type"] == "ProfileNotFoundError"
    assert "no active profile for target 't', domain 'qa'" in document["error"]["message"]


def test_wrong_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECDEC_API_PORT", "many")
    assert execute(["status"]) == 2
    assert "SPECDEC_API_PORT='many' is not valid" in capsys.readouterr().err


def test_empty_store_is_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["profiles", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert execute(["runs", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_what_is_not_stored_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["runs", "show", "none"]) == 1
    assert "there is no run 'none'" in capsys.readouterr().err
    assert execute(["profiles", "show", "77"]) == 1
    assert "there is no profile 77" in capsys.readouterr().err


def test_nothing_runs_in_a_fresh_home(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert execute(["status", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["home"], report["is_running"], report["phase"]) == (str(home), False, "stopped")
    assert execute(["env"]) == 1
    assert execute(["down"]) == 0
    assert "no services are running" in capsys.readouterr().err


def test_own_suite_is_checked_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {
        "id": "1",
        "domain": "qa",
        "turns": ["Who?"],
        "reference": ["Ada"],
        "metric": "f1",
        "meta": {},
    }
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(good) + "\n")
    assert execute(["data", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scored_items"] == 1
    path.write_text(json.dumps(good) + "\n{broken\n")
    assert execute(["data", "check", str(path)]) == 2
    error = capsys.readouterr().err
    assert "mine.jsonl" in error
    assert "2" in error


def test_assignments_are_json_where_they_can_be() -> None:
    pairs = ["tolerance=-0.05", "target=hf:Qwen/Qwen3-8B", "flag=true", "empty=", "eq=a=b"]
    assert parse_assignments(pairs) == {
        "tolerance": -0.05,
        "target": "hf:Qwen/Qwen3-8B",
        "flag": True,
        "empty": "",
        "eq": "a=b",
    }


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [(["beam"], "write name=value"), (["=1"], "write"), (["a=1", "a=2"], "twice")],
)
def test_malformed_assignments_are_refused(pairs: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_assignments(pairs)


def test_models_are_prepared_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    folders = [write_tiny_checkpoint(tmp_path / family, family) for family in ("llama", "qwen3")]
    assert execute(["models", "prepare", *(f"path:{folder}" for folder in folders), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [model["folder"] for model in answer] == [str(folder) for folder in folders]
    assert len({model["identity"] for model in answer}) == 2


def test_unknown_packaged_model_lists_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["models", "prepare", "pypi:none"]) == 2
    assert "packaged model 'none' is unknown: choose one of gemma3-270m" in capsys.readouterr().err


def test_methods_and_what_they_combine_with_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    documents = []
    for argv in (["methods"], ["methods", "--features"], ["methods", "rest"]):
        assert execute([*argv, "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    methods, features, options = documents
    names = [row["method"] for row in features]
    assert names == [row["method"] for row in methods]
    by_name = dict(zip(names, features, strict=True))
    assert by_name["`rest`"]["datastore"] == "required"
    assert by_name["`none`"]["proposes"] == "nothing"
    assert "datastore" in {row["option"] for row in options}
    assert execute(["methods", "rest", "--features"]) == 2
    assert "leave out the method, or the flag" in capsys.readouterr().err
