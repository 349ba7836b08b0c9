"""Every fault of a suite file names the file, the line and the reason."""

import re
from codecs import BOM_UTF8

import pytest

from specdec_core.data.reading import read_items, read_jsonl
from specdec_core.errors import DataError

GOOD = b'{"id": "1", "domain": "qa", "prompt": "q?", "reference": "a", "metric": "f1"}\n'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "2", "domain"\n', "not JSON: Expecting ':' delimiter at column"),
        (b'{"id": "\xff"}\n', "not UTF-8 at byte 9 of the line"),
        (b'{"id": "2", "meta": {"a": NaN}}\n', "NaN is not a JSON number"),
        (b'{"id": "2", "id": "3"}\n', "key 'id' is given twice"),
        (b"[1, 2]\n", "expected a JSON object, got list"),
        (b"[" * 100_000 + b"\n", "brackets are nested too deeply"),
    ],
)
def test_broken_line_is_named(tmp_path, line, reason):
    path = tmp_path / "suite.jsonl"
    path.write_bytes(GOOD + b"\n" + line)
    with pytest.raises(DataError, match=re.escape(f"{path}:3: ")) as caught:
        read_items(read_jsonl(path), "qa")
    assert reason in str(caught.value)


def test_blank_lines_windows_line_ends_and_a_byte_order_mark_are_accepted(tmp_path):
    path = tmp_path / "suite.jsonl"
    path.write_bytes(BOM_UTF8 + b"\n" + GOOD.replace(b"\n", b"\r\n") + b"  \n")
    assert [item.id for item in read_items(read_jsonl(path), "qa")] == ["1"]


def test_unreadable_file_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        list(read_jsonl(tmp_path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"refrence": "a"}, "unknown key 'refrence' (did you mean 'reference'?)"),
        ({"id": 7}, "key 'id': Input should be a valid string"),
        ({"id": ""}, "key 'id': String should have at least 1 character"),
        ({"reference": 3}, "key 'reference': must be a string, a list of strings or null"),
        ({"turns": ["a"]}, "needs exactly one of 'prompt' and 'turns'"),
        ({"prompt": None}, "needs exactly one of 'prompt' and 'turns'"),
        ({"prompt": "  "}, "has an empty prompt"),
        ({"prompt": "a \ud800"}, "has half of a surrogate pair"),
        ({"domain": "rag"}, "is of domain 'rag', but 'qa' was asked for: ask for 'rag'"),
        ({"metric": "F1"}, "has unknown metric 'F1'"),
        ({"metric": "rougel"}, "(did you mean 'rougeL'?)"),
        ({"reference": None}, "item 'qa/1' has metric 'f1' but no reference"),
        ({"reference": []}, "has metric 'f1' but no reference"),
        ({"reference": "B or C", "metric": "accuracy"}, "'accuracy' needs one letter, A to D"),
        ({"metric": "exact_match"}, "no number in meta.final_answer"),
        ({"metric": "exact_match", "meta": {"final_answer": "ten"}}, "no number in meta"),
        ({"metric": "pass@1", "meta": {"tests": "def check(f): pass"}}, "no tests as text: give"),
        ({"metric": "pass@1", "meta": {"entry_point": "f"}}, "no tests as text"),
        ({"metric": "pass@1", "meta": {"test_list": []}}, "no tests as text"),
        ({"metric": "pass@1", "meta": {"test_list": [1]}}, "no tests as text"),
        (
            {"metric": "pass@1", "meta": {"test_list": ["assert f"], "test_setup_code": None}},
            "no tests as text",
        ),
    ],
)
def test_schema_fault_is_named(row, changes, reason):
    with pytest.raises(DataError, match=r"^here:2: ") as caught:
        read_items([("here:1", row(0)), ("here:2", row(1, **changes))], "qa")
    assert reason in str(caught.value)


def test_missing_keys_are_all_named():
    with pytest.raises(DataError, match="key 'reference' is missing; key 'metric' is missing"):
        read_items([("x:1", {"id": "1", "domain": "qa", "prompt": "q"})], "qa")


def test_repeated_id_names_both_places(row):
    with pytest.raises(DataError, match="b:9: id 'qa/1' was already used at a:1"):
        read_items([("a:1", row(1)), ("b:9", row(1))], "qa")


def test_references_of_a_conversation_are_aligned_with_its_turns(row):
    talk = row(1, turns=["a", "b"], reference=["x"], metric=None)
    del talk["prompt"]
    with pytest.raises(DataError, match="has 2 turns but 1 references"):
        read_items([("x:1", talk)], "qa")


def test_fields_become_an_item(row):
    (item,) = read_items([("x:1", row(1, reference="one"))], "qa")
    assert (item.turns, item.references, item.metric) == (("Question 1?",), ("one",), "f1")
    assert item.meta == {"source": "test"}


@pytest.mark.parametrize("answer", ["1,234", 7, 2.5, "-3"])
def test_final_answer_may_be_text_or_number(row, answer):
    changes = {"metric": "exact_match", "meta": {"final_answer": answer}}
    assert read_items([("x:1", row(1, **changes))], "qa")
