"""Which sources the version of the code behind a result is made of."""

import pytest

from specdec_core import provenance


@pytest.mark.parametrize(
    "name",
    [
        *("base", "drafters", "ptd", "model_drafters"),
        *("window_drafters", "retrieval", "sampling"),
    ],
)
def test_options_of_methods_and_sampling_are_code_that_determines_results(name):
    assert f"config/{name}.py" in provenance._RESULT_CODE


def test_every_named_source_is_there():
    for name in provenance._RESULT_CODE:
        assert (provenance._PACKAGE / name).exists()


def test_commands_name_no_folders():
    assert provenance.command_line(["/home/me/benchmarks/__main__.py", "a b"]) == (
        "python -m benchmarks 'a b'"
    )
    assert provenance.command_line(["/opt/bin/specdec", "bench"]) == "specdec bench"
