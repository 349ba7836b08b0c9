"""The packaged suites are complete, well formed and can be scored."""

from importlib import resources

import pytest

from specdec_core.data.scoring import score
from specdec_core.data.split import split
from specdec_core.data.suites import DOMAINS, load_suite

METRIC_OF = {
    "translation": "bleu",
    "summarization": "rougeL",
    "qa": "f1",
    "rag": "f1",
    "mmlu": "accuracy",
    "math": "exact_match",
    "code": "pass@1",
    "chat": None,
}


def test_there_is_one_file_per_domain():
    folder = resources.files("specdec_core.data") / "builtin"
    names = {path.name for path in folder.iterdir() if path.name.endswith(".jsonl")}
    assert names == {f"{domain}.jsonl" for domain in DOMAINS}


@pytest.mark.parametrize("domain", DOMAINS)
def test_suite_has_enough_items_of_its_metric(domain):
    suite = load_suite(domain, suite="builtin")
    assert len(suite.items) >= (120 if domain == "translation" else 80)
    assert {item.metric for item in suite.items} == {METRIC_OF[domain]}
    assert all(len(item.turns) == 1 for item in suite.items)


@pytest.mark.parametrize("domain", DOMAINS)
def test_ids_and_prompts_are_unique(domain):
    items = load_suite(domain, suite="builtin").items
    assert len({item.id for item in items}) == len(items)
    assert len({item.prompt.casefold() for item in items}) == len(items)
    assert all(item.id.startswith(f"builtin/{domain}/") for item in items)


@pytest.mark.parametrize("domain", DOMAINS)
def test_default_split_fits(domain):
    drawn = split(load_suite(domain, suite="builtin"), 16, 64)
    assert (len(drawn.selection_ids), len(drawn.heldout_ids)) == (16, 64)


@pytest.mark.parametrize("domain", [d for d in DOMAINS if METRIC_OF[d]])
def test_every_reference_scores_full_marks_against_itself(domain):
    items = load_suite(domain, suite="builtin").items
    for item in items[::16] if domain == "code" else items:
        assert item.references
        for reference in item.references:
            assert score(item.metric, reference, item) == pytest.approx(1.0), item.id


def test_code_without_a_body_does_not_pass():
    for item in load_suite("code", suite="builtin").items[::16]:
        assert score("pass@1", "    return None\n", item) == 0.0, item.id


def test_answers_to_passages_are_in_the_passages():
    for item in load_suite("rag", suite="builtin").items:
        prompt = item.prompt.casefold()
        assert any(reference.casefold() in prompt for reference in item.references), item.id


def test_choices_are_four_and_every_letter_is_used():
    items = load_suite("mmlu", suite="builtin").items
    assert all(len(set(item.meta["choices"])) == 4 for item in items)
    counts = [sum(item.references == (letter,) for item in items) for letter in "ABCD"]
    assert min(counts) >= len(items) // 8
