"""Datastores from texts to a request and into a worker: what goes in, and what is refused."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from flows.commands.execute import execute
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.records import EvaluationResult
from specdec_core.retrieval.datastore import open_datastore
from specdec_core.retrieval.indexed_text import SEPARATOR
from tasks.datastores import build_datastore
from tasks.evaluator import ModelEvaluator
from tasks.prepare import Workload, prepare


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose token ids are one more than the place of a byte in its alphabet."""
    return f"path:{write_tiny_checkpoint(tmp_path_factory.mktemp('tiny') / 'model')}"


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "notes.txt"
    path.write_text("a cat sat on a mat")
    return str(path)


@pytest.fixture
def suite(tmp_path: Path) -> str:
    items = [
        {"id": "0", "domain": "pets", "turns": ["who?", "why?"], "reference": ["cat", ""]},
        {"id": "1", "domain": "pets", "prompt": "what?", "reference": None},
    ]
    path = tmp_path / "pets.jsonl"
    path.write_text("".join(json.dumps({"metric": None, **item}) + "\n" for item in items))
    return str(path)


def build(folder: Path, *sources: str, model: str, settings: Settings) -> Path:
    build_datastore(folder, sources, model, settings, lambda _line: None)
    return folder


def test_turns_references_and_texts_become_documents(
    tmp_path: Path, model: str, suite: str, text: str, settings: Settings
) -> None:
    lines: list[str] = []
    folder = tmp_path / "store"
    manifest = build_datastore(folder, [suite, text], model, settings, lines.append)
    assert [source.kind for source in manifest.sources] == ["suite", "text"]
    # Documents: who? why? cat what?; one token per byte and no special tokens.
    assert [source.num_documents for source in manifest.sources] == [4, 1]
    assert [source.num_tokens for source in manifest.sources] == [4 + 4 + 3 + 5, 18]
    assert manifest.vocab_size == 257
    assert any("do not measure" in line and suite in line for line in lines)
    tokens = open_datastore(folder)[1].tokens.tolist()
    assert len(tokens) == 34 + 5
    assert tokens[4] == tokens[9] == tokens[13] == SEPARATOR
    assert tokens[:2] == tokens[5:7]  # the beginning of who and of why


def test_a_domain_stands_for_its_suite(tmp_path: Path, model: str) -> None:
    settings = Settings(home=tmp_path, cache=tmp_path / "cache", data=Path("builtin"))
    manifest = build_datastore(tmp_path / "s", ["qa"], model, settings, lambda _line: None)
    assert manifest.sources[0].num_documents > 2


def test_the_command_builds_and_shows(
    tmp_path: Path,
    model: str,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    argv = ["datastore", "build", "store", "--from", text, "--model", model, "--json"]
    assert execute(argv) == 0
    built = json.loads(capsys.readouterr().out)
    assert built["sources"][0]["num_tokens"] == 18
    assert execute(["datastore", "show", "store", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == built
    assert execute(["datastore", "show", "store"]) == 0
    assert "18 tokens" in capsys.readouterr().out
    assert execute(argv) == 2
    assert "store exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.txt", None, "is neither a file nor a domain"),
        ("empty.txt", b" \n", "is empty: give a file with text"),
        ("latin.txt", b"caf\xe9", "not UTF-8 at byte 4"),
        ("broken.jsonl", b"{}\n", "no item with a domain"),
        ("other.jsonl", b'{"domain": "x", "id": "1"}\n', "key 'reference' is missing"),
    ],
)
def test_a_source_that_cannot_be_used_leaves_nothing_behind(
    tmp_path: Path, settings: Settings, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        build(tmp_path / "store", str(tmp_path / name), model="path:/none", settings=settings)
    assert not (tmp_path / "store").exists()


def request_for(workload: Workload, drafter: str):
    items = [item.id for item in workload.suite.items[:2]]
    return workload.request(skip="", drafter=drafter, item_ids=items, max_new_tokens=12)


@pytest.fixture
def workload(model: str, suite: str, settings: Settings) -> Workload:
    return prepare(model, "pets", suite, "float64", settings)


def test_the_key_names_the_content_and_not_its_place(
    tmp_path: Path, model: str, text: str, suite: str, workload: Workload, settings: Settings
) -> None:
    first = build(tmp_path / "a", text, model=model, settings=settings)
    shutil.copytree(first, tmp_path / "b")
    other = build(tmp_path / "c", suite, model=model, settings=settings)
    for method in ("rest", "suffix-automaton"):
        here, there, others = (
            request_for(workload, f"{method}:datastore={folder}").key
            for folder in (first, tmp_path / "b", other)
        )
        assert here == there
        assert here != others


def test_a_datastore_of_the_suite_itself_is_warned_of(
    tmp_path: Path,
    model: str,
    text: str,
    suite: str,
    workload: Workload,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clean = build(tmp_path / "clean", text, model=model, settings=settings)
    with caplog.at_level(logging.WARNING, logger="tasks"):
        request_for(workload, f"rest:datastore={clean}")
        assert caplog.messages == []
        seen = build(tmp_path / "seen", suite, model=model, settings=settings)
        request_for(workload, f"rest:datastore={seen}")
        assert "holds 2 of the 2 prompts of suite pets" in caplog.text


def test_what_cannot_be_drafted_from_is_refused_when_it_is_asked_for(
    tmp_path: Path, model: str, text: str, workload: Workload, settings: Settings
) -> None:
    with pytest.raises(ConfigError, match="no datastore in"):
        request_for(workload, f"rest:datastore={tmp_path / 'absent'}")
    good = build(tmp_path / "good", text, model=model, settings=settings)
    with (good / "tokens.npy").open("r+b") as file:
        file.seek(-4, 2)
        file.write(bytes(4))
    with pytest.raises(ConfigError, match="its content has changed since it was written"):
        request_for(workload, f"rest:datastore={good}")


def test_another_tokenizer_is_refused(
    tmp_path: Path, model: str, text: str, workload: Workload, settings: Settings
) -> None:
    other = tmp_path / "other"
    shutil.copytree(model.removeprefix("path:"), other)
    file = other / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["k"], vocabulary["q"] = vocabulary["q"], vocabulary["k"]
    file.write_text(json.dumps(content))
    folder = build(tmp_path / "store", text, model=f"path:{other}", settings=settings)
    with pytest.raises(ConfigError, match=f"tokenizer of path:{other}, which is not that of"):
        request_for(workload, f"suffix-automaton:datastore={folder}")


def test_a_worker_refuses_another_content_at_the_same_place(
    tmp_path: Path, model: str, text: str, suite: str, workload: Workload, settings: Settings
) -> None:
    folder = build(tmp_path / "store", text, model=model, settings=settings)
    job = request_for(workload, f"rest:datastore={folder},min_suffix=1")
    evaluator = ModelEvaluator(settings)
    plain = evaluator.run(request_for(workload, "none"), lambda: False)
    result = evaluator.run(job, lambda: False)
    assert isinstance(plain, EvaluationResult)
    assert isinstance(result, EvaluationResult)
    assert [s.token_ids for s in result.samples] == [s.token_ids for s in plain.samples]
    shutil.rmtree(folder)
    build(folder, suite, model=model, settings=settings)
    with pytest.raises(ConfigError, match=r"asks for drafter_data .* the files changed"):
        evaluator.run(job, lambda: False)
