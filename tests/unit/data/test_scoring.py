"""Task metrics against values known from elsewhere or worked out by hand."""

import math

import pytest

from specdec_core.data.scoring import pass_program, score, token_f1
from specdec_core.data.suites import SuiteItem
from specdec_core.errors import DataError

METER = "The darker the meat , the higher the pH value ."


def _item(*references: str, **meta) -> SuiteItem:
    return SuiteItem("a", "x", ("def f(x):\n",), references, None, meta)


def test_bleu_is_lowered_by_brevity_alone():
    # 11 tokens, all n-grams of the hypothesis match: only the brevity penalty exp(1 - 11/10).
    hypothesis = "The darker the meat, the higher the pH value"
    assert score("bleu", hypothesis, _item(METER)) == pytest.approx(math.exp(1 - 11 / 10))
    assert score("bleu", hypothesis, _item(METER)) == pytest.approx(0.9048, abs=5e-5)
    shorter = "The darker the meat, the higher the pH"
    assert score("bleu", shorter, _item(METER)) == pytest.approx(0.8007, abs=5e-5)


def test_bleu_uses_all_references_and_short_texts_are_not_zero():
    assert score("bleu", "good morning", _item("hello", "good morning")) == pytest.approx(1.0)
    assert score("bleu", "", _item("hello")) == 0.0


def test_rouge_l_is_the_best_over_references():
    # Longest common subsequence "the cat on mat": 4 of 6 words on both sides.
    lay = _item("the cat sat on the mat")
    assert score("rougeL", "the cat lay on a mat", lay) == pytest.approx(2 / 3)
    both = _item("the cat sat on the mat", "the cat lay on a mat")
    assert score("rougeL", "the cat lay on a mat", both) == pytest.approx(1.0)
    assert score("rougeL", "running", _item("run")) == 0.0


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The year 1999.", "1999", 2 / 3),
        ("in the City of Bradford", "City of Bradford", 6 / 7),
        ("", "", 1.0),
        ("the", "An", 1.0),
        ("", "x", 0.0),
        ("x", "the", 0.0),
        ("red red blue", "red blue blue", 2 / 3),
        ("co-op", "coop", 1.0),
        ("theory", "ory", 0.0),
    ],
)
def test_token_f1(answer, reference, expected):
    assert token_f1(answer, [reference]) == pytest.approx(expected)
    assert score("f1", answer, _item("zzz", reference)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("B", 1.0), ("(B) because", 1.0), ("Because of B", 1.0), ("C, not B", 0.0), ("Beta", 0.0)],
)
def test_accuracy_takes_the_first_letter_that_stands_alone(answer, expected):
    assert score("accuracy", answer, _item("B")) == expected


@pytest.mark.parametrize(
    ("answer", "final_answer", "expected"),
    [
        ("3 * 4 = 12 apples", "12", 1.0),
        ("12 of 13", "12", 0.0),
        ("$1,200.00", "1200", 1.0),
        ("1200", "1,200", 1.0),
        ("-3", -3, 1.0),
        ("2.5", 2.5, 1.0),
        ("none", "12", 0.0),
        ("", "0", 0.0),
    ],
)
def test_exact_match_compares_the_last_number(answer, final_answer, expected):
    assert score("exact_match", answer, _item(final_answer=final_answer)) == expected


def test_pass_at_1_continues_the_prompt():
    item = _item(tests="def check(f):\n    assert f(2) == 4", entry_point="f")
    assert score("pass@1", "    return x * 2\n", item) == 1.0
    assert score("pass@1", "    return x * 3\n", item) == 0.0
    assert score("pass@1", "    return x *\n", item) == 0.0
    assert score("pass@1", "def f(x):\n    return 2 * x\n", item) == 0.0
    assert score("pass@1", "    0\ndef f(x):\n    return 2 * x\n", item) == 1.0


def test_pass_at_1_with_a_list_of_tests():
    item = _item(test_setup_code="n = 4", test_list=["assert f(2) == n", "assert f(0) == 0"])
    assert score("pass@1", "def f(x):\n    return 2 * x", item) == 1.0
    assert score("pass@1", "def f(x):\n    return x + 2", item) == 0.0


def test_program_is_prompt_answer_tests_and_call():
    meta = {"tests": "def check(f): pass", "entry_point": "f"}
    assert pass_program("    pass", "def f():\n", meta) == (
        "def f():\n    pass\ndef check(f): pass\ncheck(f)\n"
    )
    listed = {"test_list": ["a", "b"], "entry_point": "f"}  # named, but without a check of it
    assert pass_program("x", "ignored", listed) == "x\n\na\nb\n"


def test_without_metric_there_is_no_score():
    assert score(None, "anything", _item()) is None


def test_unknown_metric_and_missing_reference_are_errors():
    with pytest.raises(DataError, match=r"metric 'blue' is unknown \(did you mean 'bleu'\?\)"):
        score("blue", "x", _item("x"))
    with pytest.raises(DataError, match="item 'a' has no reference for metric 'f1'"):
        score("f1", "x", _item())
