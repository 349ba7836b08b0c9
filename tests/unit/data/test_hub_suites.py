"""Suites read with `datasets`, from a local folder in the place of a hub repository."""

import pytest

from specdec_core.data.suites import load_suite
from specdec_core.errors import DataError

datasets = pytest.importorskip("datasets")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A working directory in which `datasets` finds the name of a repository as a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


@pytest.mark.usefixtures("hub")
def test_hub_suite_has_the_content_of_the_file(write_suite, row):
    rows = [row(1, meta={"a": 1}), row(2, meta={"b": "x"}, reference=None, metric=None)]
    path = write_suite("org/name/test.jsonl", rows)
    suite = load_suite("qa", "hf:org/name")
    assert suite.content_hash == load_suite("qa", str(path)).content_hash
    assert (suite.name, suite.source) == ("org/name", "hf:org/name")


@pytest.mark.usefixtures("hub")
def test_hub_suite_of_another_split(write_suite, row):
    write_suite("org/name/test.jsonl", [row(1)])
    write_suite("org/name/train.jsonl", [row(2)])
    assert [item.id for item in load_suite("qa", "hf:org/name:train").items] == ["qa/2"]
    with pytest.raises(DataError, match="that it has a split 'dev'"):
        load_suite("qa", "hf:org/name:dev")


@pytest.mark.usefixtures("hub")
def test_fault_in_a_hub_row_names_the_row(write_suite, row):
    write_suite("org/name/test.jsonl", [row(1), row(2, metric="blue")])
    with pytest.raises(DataError, match=r"hf:org/name row 1: item 'qa/2' has unknown metric"):
        load_suite("qa", "hf:org/name")


def test_unreachable_hub_is_a_clear_error(monkeypatch):
    def unreachable(*_args, **_options):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(DataError, match=r"'hf:org/name@main:dev' cannot be loaded .*no route"):
        load_suite("qa", "hf:org/name@main:dev")


def test_malformed_hub_name_shows_the_form():
    with pytest.raises(DataError, match=r"write hf:org/name\[@revision\]\[:split\]"):
        load_suite("qa", "hf:name")
