"""Where answers end and what the metric compares."""

import pytest

from specdec_core.data.extraction import extract_answer, find_stop
from specdec_core.data.templates import Template, get_template


@pytest.mark.parametrize(
    ("domain", "text", "answer"),
    [
        ("translation", " The train.\nGerman: Nein", "The train."),
        ("translation", "\n\n The train.", "The train."),
        ("translation", "", ""),
        ("translation", " \n ", ""),
        ("qa", " Paris \nQuestion:", "Paris"),
        ("summarization", " One.\nTwo.\n\nArticle: x", "One.\nTwo."),
        ("summarization", " One.\nArticle: x\n\n", "One."),
        ("math", " 3 * 5 = 15. The answer is 15.\n\nQuestion: 7 apples", "15"),
        ("math", " It costs $1,234.50 in all\nQuestion: 9", "1,234.50"),
        ("math", " none\n\n12", ""),
        ("mmlu", " B\nA", "B"),
        ("mmlu", " Because C", "C"),
        ("mmlu", " E", ""),
        ("chat", "Hello.\n\nBye.\nUser: x", "Hello.\n\nBye."),
        ("law", "All of\n\nit \n", "All of\n\nit"),
    ],
)
def test_base_answer_and_its_end(domain, text, answer):
    extraction = extract_answer(text, get_template(domain, "base"))
    assert extraction.answer == answer
    assert text[extraction.end - len(answer) : extraction.end] == answer
    assert bool(extraction.end) == bool(answer)


@pytest.mark.parametrize(
    "rest",
    ["def g():\n    pass", "class A:", 'if __name__ == "__main__":', "print(f(1))"],
)
def test_code_ends_before_a_line_that_starts_something_else(rest):
    body = "    x = 1\n\n    def inner():\n        print(x)\n    return inner"
    extraction = extract_answer(f"{body}\n\n\n{rest}", get_template("code", "base"))
    assert extraction.answer == body
    assert extraction.end == len(body)


def test_function_written_anew_is_kept_up_to_the_next_one():
    text = "\ndef f():\n    return 1\n\ndef g():"
    assert extract_answer(text, get_template("code", "base")).answer == "\ndef f():\n    return 1"


def test_chat_code_is_the_first_fenced_block():
    template = get_template("code", "chat")
    text = "Sure:\n```python\ndef f():\n    return 1\n```\nDone.\n```\nx\n```"
    extraction = extract_answer(text, template)
    assert extraction.answer == "def f():\n    return 1\n"
    assert text[extraction.end :].startswith("```\nDone.")
    assert extract_answer("    return 1", template).answer == "    return 1"
    assert extract_answer("```\nx = 1\ny", template).answer == "x = 1\ny"


def test_chat_answers_are_not_cut_at_line_breaks():
    assert extract_answer(" a\n\nb ", get_template("qa", "chat")).answer == "a\n\nb"
    steps = "First 3.\n\nThen 4. So 12."
    assert extract_answer(steps, get_template("math", "chat")).answer == "12"


def test_stop_is_the_earliest_one_behind_the_opening_space():
    template = Template("x", "base", "{text}", stop_strings=("END", "\n"))
    assert find_stop("\n  a END b\n", template) == 5
    assert find_stop("a\nEND", template) == 1
    assert find_stop("\n\n", template) is None
    assert find_stop("END", template) == 0
    assert find_stop("a", template) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10-5", "5"),
        ("10 - 5", "5"),
        ("x = -5", "-5"),
        ("-5", "-5"),
        ("(3)-4", "4"),
        ("1,2", "2"),
        ("12,345,678.", "12,345,678"),
        ("1,2345", "2345"),
        ("3.75 kg", "3.75"),
    ],
)
def test_last_number(text, number):
    assert extract_answer(text, get_template("math", "chat")).answer == number
