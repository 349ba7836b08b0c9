"""Which sources the version of the code behind a result is made of."""

import ast

import pytest

from specdec_core import provenance


@pytest.mark.parametrize(
    "name",
    [
        *("base", "drafters", "ptd", "model_drafters", "learned_drafters", "tree_options"),
        *("window_drafters", "retrieval", "sampling"),
    ],
)
def test_options_of_methods_and_sampling_are_code_that_determines_results(name):
    assert f"config/{name}.py" in provenance._RESULT_CODE


def test_every_named_source_is_there():
    for name in provenance._RESULT_CODE:
        assert (provenance._PACKAGE / name).exists()


# Records, requests and errors are shapes; what the machine is decides no result.
SHAPES = {"config/evaluation.py", "errors.py", "records.py", "profiling/hardware.py"}


@pytest.mark.parametrize("name", ["evaluation.py", "language_loss.py", "summary.py"])
def test_what_an_evaluation_is_made_with_determines_results(name):
    tree = ast.parse((provenance._PACKAGE / name).read_text())
    imported = {
        node.module.removeprefix("specdec_core.").replace(".", "/") + ".py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specdec_core.")
    }
    covered = provenance._RESULT_CODE
    folders = tuple(f"{each}/" for each in covered if not each.endswith(".py"))
    left_out = {one for one in imported if one not in covered and not one.startswith(folders)}
    assert left_out <= SHAPES


def test_commands_name_no_folders():
    assert provenance.command_line(["/home/me/benchmarks/__main__.py", "a b"]) == (
        "python -m benchmarks 'a b'"
    )
    assert provenance.command_line(["/opt/bin/specdec", "bench"]) == "specdec bench"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("/home/me/my.jsonl", "my.jsonl"),
        ("--data=/home/me/suites", "--data=suites"),
        ("path:/home/me/model", "path:model"),
        ("sqlite:////home/me/specdec.db", "specdec.db"),
        ("postgresql+psycopg://me:secret@host/specdec", "specdec"),
        ("hf:org/name", "hf:org/name"),
        ("suites/my.jsonl", "suites/my.jsonl"),
    ],
)
def test_arguments_keep_neither_folders_nor_passwords(given, kept):
    assert provenance.command_line(["/opt/bin/specdec", given]) == f"specdec {kept}"
