"""Drawing prompts: which are taken, in which order, and what is left out."""

import json
from pathlib import Path

import pytest

from specdec_core.data.suites import load_suite
from specdec_core.errors import DataError
from specdec_core.training.prompts import (
    Drawn,
    Message,
    Prompt,
    draw_prompts,
    evaluation_letters,
    letters_of,
)
from tests.draft_prompts import questions, write_prompts

BUILTIN = "builtin"


@pytest.fixture
def draw(tmp_path):
    """Draw from files with nothing public about, by default all there is."""

    def drawn(*sources, num=100, **options):
        fields = {"max_turns": 1, "seed": 0, "data_dir": tmp_path / "data", **options}
        (tmp_path / "data").mkdir(exist_ok=True)
        return draw_prompts([str(source) for source in sources], num, **fields)

    return drawn


def ids(drawn):
    return [prompt.id for prompt in drawn.prompts]


def test_files_take_turns(draw, tmp_path):
    one = write_prompts(tmp_path / "one.jsonl", questions(10, "one"), "a")
    two = write_prompts(tmp_path / "two.jsonl", questions(3, "two"), "b")
    drawn = draw(one, two, num=8)
    assert [prompt.source for prompt in drawn.prompts[:6]] == ["one", "two"] * 3
    assert [prompt.source for prompt in drawn.prompts[6:]] == ["one", "one"]


def test_the_order_depends_on_the_seed_and_not_on_place_or_order_of_lines(draw, tmp_path):
    rows = [{"prompt": text, "id": f"q{n}"} for n, text in enumerate(questions(20))]
    here = write_prompts(tmp_path / "here.jsonl", rows)
    (tmp_path / "sub").mkdir()
    there = write_prompts(tmp_path / "sub" / "there.jsonl", rows[::-1])
    assert ids(draw(here)) == ids(draw(there))
    assert draw(here).content_hash == draw(there).content_hash
    assert ids(draw(here, seed=1)) != ids(draw(here))
    assert sorted(ids(draw(here, seed=1))) == sorted(ids(draw(here)))
    assert ids(draw(here)) != sorted(ids(draw(here)))


def test_a_smaller_draw_is_the_beginning_of_a_larger_one(draw, tmp_path):
    file = write_prompts(tmp_path / "a.jsonl", questions(20))
    assert ids(draw(file, num=5)) == ids(draw(file, num=12))[:5]


def test_prompts_with_the_same_letters_and_digits_are_drawn_once(draw, tmp_path):
    file = write_prompts(tmp_path / "a.jsonl", ["What is 2?", "what IS...2", "What is 3?"])
    drawn = draw(file)
    assert len(drawn.prompts) == 2
    assert drawn.dropped == {"repeated": 1}


def test_conversations_that_differ_in_a_later_turn_are_both_drawn(draw, tmp_path):
    file = write_prompts(tmp_path / "a.jsonl", [["Hi there", "one"], ["Hi there", "two"]])
    assert len(draw(file, max_turns=2).prompts) == 2
    assert len(draw(file, max_turns=1).prompts) == 1


def test_questions_of_packaged_suites_are_left_out(draw, tmp_path):
    asked = load_suite("chat", BUILTIN).items[0].prompt
    file = write_prompts(tmp_path / "a.jsonl", [asked.upper() + "!!", "Something else entirely"])
    drawn = draw(file)
    assert drawn.dropped == {"evaluation": 1}
    assert [p.messages[0].content for p in drawn.prompts] == ["Something else entirely"]


def test_questions_of_any_suite_in_the_data_folder_are_left_out_but_not_of_the_pool(draw, tmp_path):
    data = tmp_path / "data"
    for folder in ("mine", "train_pool"):
        (data / folder).mkdir(parents=True)
    rows = [{"prompt": "Held out", "reference": None, "metric": None}]
    write_prompts(data / "mine" / "test.jsonl", rows, "e")
    write_prompts(data / "train_pool" / "talk.jsonl", ["Held out", "Free"], "t")
    write_prompts(data / "train_pool" / "chat_noncommercial.jsonl", ["Bound"], "n")
    drawn = draw("talk")
    assert [p.messages[0].content for p in drawn.prompts] == ["Free"]
    assert [p.source for p in draw().prompts] == ["talk"]  # none named: the pool
    assert letters_of("Free") not in evaluation_letters(data)


def test_a_prompt_file_inside_the_data_folder_does_not_rule_itself_out(draw, tmp_path):
    (tmp_path / "data").mkdir()
    file = write_prompts(tmp_path / "data" / "own.jsonl", questions(3))
    assert len(draw(file).prompts) == 3


def test_prompts_that_cannot_be_used_are_counted_by_reason(draw, tmp_path):
    file = write_prompts(tmp_path / "a.jsonl", questions(4))
    drawn = draw(file, why_not=lambda prompt: "too long" if prompt.id in "01" else None)
    assert drawn.dropped == {"too long": 2}
    assert set(ids(drawn)) == {"2", "3"}


def test_turns_beyond_those_asked_for_are_cut(draw, tmp_path):
    file = write_prompts(tmp_path / "a.jsonl", [["a first", "second", "third"]])
    assert draw(file, max_turns=2).prompts[0].later_turns == ("second",)


def test_a_conversation_keeps_its_answers(draw, tmp_path):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
    file = write_prompts(tmp_path / "a.jsonl", [{"messages": messages}])
    (prompt,) = draw(file).prompts
    assert prompt.is_finished
    assert prompt.domain == "chat"
    assert [m.role for m in prompt.messages] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "turns": ["b"]}, "exactly one of 'prompt', 'turns' and 'messages'"),
        ({}, "exactly one of"),
        ({"prompt": " "}, "empty turn"),
        ({"prompt": "hi \ud800 there"}, "half of a surrogate pair"),
        ({"turns": ["a", "b\udfff"]}, "half of a surrogate pair"),
        ({"turns": ["a", ""]}, "empty turn"),
        ({"prompt": "a", "promt": "b"}, "promt: Extra inputs are not permitted"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "take turns"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
            "take turns",
        ),
    ],
)
def test_broken_lines_are_refused_with_their_place(draw, tmp_path, row, message):
    file = write_prompts(tmp_path / "a.jsonl", ["fine", row])
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}"):
        draw(file)


def test_a_hub_data_set_may_have_other_columns_and_no_ids(draw, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "org" / "name").mkdir(parents=True)
    rows = [{"prompt": "One", "length": 3}, {"prompt": "Two", "length": 3}]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "org" / "name" / "train.jsonl").write_text(lines)
    drawn = draw("hf:org/name")
    assert sorted(ids(drawn)) == ["0", "1"]
    assert {p.source for p in drawn.prompts} == {"org/name"}


def test_an_id_that_occurs_in_two_files_is_refused(draw, tmp_path):
    files = [write_prompts(tmp_path / f"{n}.jsonl", [f"text {n}"]) for n in "ab"]
    with pytest.raises(DataError, match="1 prompt ids occur twice"):
        draw(*files)


def test_names_that_are_not_there_are_refused_with_what_is(draw, tmp_path):
    (tmp_path / "data" / "train_pool").mkdir(parents=True)
    write_prompts(tmp_path / "data" / "train_pool" / "chat.jsonl", ["a"])
    with pytest.raises(DataError, match=r"no 'chatt' \(did you mean 'chat'"):
        draw("chatt")
    with pytest.raises(DataError, match="does not exist"):
        draw(tmp_path / "absent.jsonl")


def test_without_a_pool_and_without_files_the_user_is_told_what_to_give():
    with pytest.raises(DataError, match="no training pool"):
        draw_prompts([], 4, max_turns=1, seed=0, data_dir=Path(BUILTIN))


def test_nothing_left_is_refused(draw, tmp_path):
    file = write_prompts(tmp_path / "a.jsonl", questions(2))
    with pytest.raises(DataError, match=r"no prompt is left .*'too long': 2"):
        draw(file, why_not=lambda _prompt: "too long")


def test_the_content_hash_is_of_texts_and_not_of_names_of_files(tmp_path):
    def drawn(text, source):
        message = Message(role="user", content=text)
        return Drawn((Prompt(id="1", domain="x", source=source, messages=(message,)),), {})

    assert drawn("a", "one").content_hash == drawn("a", "two").content_hash
    assert drawn("a", "one").content_hash != drawn("b", "one").content_hash
