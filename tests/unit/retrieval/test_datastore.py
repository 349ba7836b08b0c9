"""Datastores on disk: written whole, opened mapped, and refused when something is wrong."""

import json

import numpy as np
import pytest

from specdec_core.errors import ConfigError
from specdec_core.retrieval.datastore import (
    DatastoreSource,
    open_datastore,
    read_manifest,
    verify_datastore,
    write_datastore,
)
from specdec_core.retrieval.indexed_text import index_documents

DOCUMENTS = [[70_000, 2, 3], [2, 3]]
SOURCE = DatastoreSource(name="a.txt", kind="text", content_hash="h", num_documents=2, num_tokens=5)


def write(folder, documents=DOCUMENTS):
    return write_datastore(
        folder,
        index_documents(documents),
        (SOURCE,),
        model="path:/m",
        tokenizer_identity="t",
        vocab_size=100_000,
    )


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "store")
    return tmp_path / "store"


def test_it_reads_back_mapped(folder):
    manifest, text = open_datastore(folder)
    assert manifest == verify_datastore(folder)
    assert isinstance(text.tokens, np.memmap)
    assert text.find([70_000, 2]).num == 1
    assert text.find([2, 3]).num == 2
    assert manifest.length == len(text) == 7
    assert manifest.num_tokens == 5


def test_nothing_else_is_left_beside_it(folder):
    assert [path.name for path in folder.parent.iterdir()] == ["store"]
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        "tokens.npy",
        "suffixes.npy",
    }


def test_the_identity_is_that_of_the_tokens_wherever_they_lie(tmp_path):
    first, again = write(tmp_path / "a"), write(tmp_path / "b")
    other = write(tmp_path / "c", [[70_000, 2], [3, 2, 3]])
    assert first.tokens_hash == again.tokens_hash != other.tokens_hash


def test_an_existing_folder_is_left_alone(folder):
    before = read_manifest(folder)
    with pytest.raises(ConfigError, match="exists already: remove it or name another folder"):
        write(folder, [[1]])
    assert read_manifest(folder) == before


def test_a_missing_one_says_how_to_build_it(tmp_path):
    for read in (read_manifest, open_datastore, verify_datastore):
        with pytest.raises(ConfigError, match=r"no datastore in .*specdec datastore build"):
            read(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["tokens.npy", "suffixes.npy"])
def test_damage_is_found(folder, name):
    path = folder / name
    whole = path.read_bytes()
    verify_datastore(folder)
    path.write_bytes(whole[:-4] + bytes(4))
    with pytest.raises(ConfigError, match=r"is damaged: its content has changed.*build it again"):
        verify_datastore(folder)
    path.write_bytes(whole[:-4])
    with pytest.raises(ConfigError, match=f"{name} cannot be read"):
        open_datastore(folder)
    np.save(path, np.arange(3))
    with pytest.raises(ConfigError, match=rf"{name} holds int64 \(3,\)"):
        open_datastore(folder)
    path.unlink()
    with pytest.raises(ConfigError, match=f"damaged: {name} cannot be read"):
        verify_datastore(folder)


@pytest.mark.parametrize("change", [{"format_version": 2}, {"sources": []}, {"length": "many"}])
def test_a_manifest_of_another_form_is_refused(folder, change):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match="its manifest is not valid"):
        read_manifest(folder)
