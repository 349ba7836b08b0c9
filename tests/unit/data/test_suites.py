"""Where suites are found, and what identifies them."""

import logging
from pathlib import Path

import pytest

from specdec_core.data import suites
from specdec_core.data.suites import DOMAINS, Suite, SuiteItem, load_suite
from specdec_core.errors import DataError


@pytest.fixture
def isolated(tmp_path, monkeypatch):
    """Run in a folder with nothing beside it, as a fresh clone does."""
    repository = tmp_path / "clone" / "repository"
    repository.mkdir(parents=True)
    module = repository / "specdec_core" / "data" / "suites.py"
    monkeypatch.setattr(suites, "__file__", str(module))
    monkeypatch.chdir(repository)
    return repository


@pytest.mark.usefixtures("isolated")
def test_packaged_set_is_used_when_nothing_else_is_there():
    suite = load_suite("qa")
    assert (suite.name, suite.source) == ("builtin/qa", "builtin")


def test_explicit_file_wins_over_the_data_folder(write_suite, row):
    path = write_suite("mine/own.jsonl", [row(1)])
    other = write_suite("data/qa.jsonl", [row(2)])
    suite = load_suite("qa", str(path), other.parent)
    assert [item.id for item in suite.items] == ["qa/1"]
    assert suite.name == "own"


@pytest.mark.usefixtures("isolated")
def test_data_folder_wins_over_the_folder_beside(write_suite, row):
    write_suite("clone/shared/data/qa.jsonl", [row(1)])
    data = write_suite("data/qa.jsonl", [row(2)]).parent
    assert [item.id for item in load_suite("qa").items] == ["qa/1"]
    assert [item.id for item in load_suite("qa", data_dir=data).items] == ["qa/2"]


@pytest.mark.usefixtures("isolated")
def test_folder_beside_the_repository_is_found_from_elsewhere(
    write_suite, row, tmp_path, monkeypatch
):
    write_suite("clone/shared/data/qa.jsonl", [row(1)])
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert [item.id for item in load_suite("qa").items] == ["qa/1"]


@pytest.mark.usefixtures("isolated")
def test_data_folder_without_the_domain_is_passed_over_with_a_warning(write_suite, row, caplog):
    folder = write_suite("data/qa.jsonl", [row(1)]).parent
    with caplog.at_level(logging.WARNING):
        suite = load_suite("rag", data_dir=folder)
    assert suite.source == "builtin"
    assert f"{folder} has no suite for 'rag'" in caplog.text


def test_data_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(DataError, match="missing does not exist: correct SPECDEC_DATA"):
        load_suite("qa", data_dir=tmp_path / "missing")


@pytest.mark.usefixtures("isolated")
def test_builtin_forces_the_packaged_set(write_suite, row):
    write_suite("clone/shared/data/qa.jsonl", [row(1)])
    assert load_suite("qa", data_dir=Path("builtin")).source == "builtin"
    assert load_suite("qa", suite="builtin").source == "builtin"


def test_public_files_of_a_domain_are_joined(write_suite, row, isolated):
    rows = {"domain": "translation", "metric": "bleu"}
    write_suite("clone/shared/data/spec_bench/translation.jsonl", [row(1, **rows)])
    folder = isolated.parent / "shared" / "data"
    assert load_suite("translation").source == "builtin"
    write_suite("clone/shared/data/wmt_de_en/newstest2021_sample.jsonl", [row(2, **rows)])
    suite = load_suite("translation")
    assert [item.id for item in suite.items] == ["qa/1", "qa/2"]
    assert suite.name == "spec_bench/translation+wmt_de_en/newstest2021_sample"
    assert suite.source == str(folder)


@pytest.mark.usefixtures("isolated")
@pytest.mark.parametrize(
    ("name", "file", "own", "domain", "metric"),
    [
        ("longbench_write", "longbench_write/prompts", "long_form", "chat", None),
        ("stem_qa", "stem_qa/test_sample", "stem_qa", "mmlu", "accuracy"),
    ],
)
def test_sets_of_further_domains_are_asked_as_the_domain_they_are_like(
    write_suite, row, name, file, own, domain, metric
):
    assert load_suite(domain, name).source == "builtin"
    given = {"domain": own, "metric": metric, "reference": "A" if metric else None}
    write_suite(f"clone/shared/data/{file}.jsonl", [row(1, **given)])
    suite = load_suite(domain, name)
    assert (suite.name, suite.domain, suite.items[0].domain) == (file, domain, domain)


@pytest.mark.usefixtures("isolated")
def test_source_reads_back_the_same_items(write_suite, row):
    rows = {"domain": "mt_bench", "metric": None, "reference": None}
    write_suite("clone/shared/data/spec_bench/mt_bench.jsonl", [row(1, **rows)])
    own = write_suite("own/qa/a.jsonl", [row(1)])
    for suite in (load_suite("chat"), load_suite("qa"), load_suite("qa", str(own.parent.parent))):
        assert load_suite(suite.domain, suite.source) == suite


def test_folder_of_a_domain_is_read_in_name_order(write_suite, row, tmp_path):
    write_suite("own/qa/b.jsonl", [row(1)])
    write_suite("own/qa/a.jsonl", [row(2)])
    suite = load_suite("qa", str(tmp_path / "own"))
    assert [item.id for item in suite.items] == ["qa/2", "qa/1"]
    assert suite.name == "qa/a+qa/b"


def test_folder_without_the_domain_says_what_was_expected(write_suite, row):
    folder = write_suite("own/qa.jsonl", [row(1)]).parent
    with pytest.raises(DataError, match=r"no files for domain 'rag': expected rag\.jsonl"):
        load_suite("rag", str(folder))


def test_suite_path_that_does_not_exist_is_an_error():
    with pytest.raises(DataError, match=r"'nowhere\.jsonl' does not exist: give a JSONL file"):
        load_suite("qa", "nowhere.jsonl")


def test_domain_of_ones_own_needs_a_suite(write_suite, row):
    path = write_suite("law.jsonl", [row(1, domain="law")])
    assert load_suite("law", str(path)).domain == "law"
    assert load_suite("law", data_dir=path.parent).domain == "law"
    with pytest.raises(DataError, match=r"domain 'law' is unknown.*suite of your own"):
        load_suite("law", suite="builtin")


@pytest.mark.parametrize(
    ("domain", "meant"),
    [("translations", "translation"), ("math_reasoning", "math"), ("mt_bench", "chat")],
)
def test_unknown_domain_names_the_nearest_and_lists_all(domain, meant):
    with pytest.raises(DataError, match=f"did you mean '{meant}'") as caught:
        load_suite(domain)
    assert all(name in str(caught.value) for name in DOMAINS)


def test_domain_that_would_leave_the_folder_is_unknown(write_suite, row):
    folder = write_suite("data/qa.jsonl", [row(1)]).parent / "inner"
    folder.mkdir()
    with pytest.raises(DataError, match=r"domain '\.\./qa' is unknown"):
        load_suite("../qa", str(folder))


def test_content_hash_ignores_path_and_order_but_not_a_byte(write_suite, row):
    first = load_suite("qa", str(write_suite("a/x.jsonl", [row(1), row(2)])))
    moved = load_suite("qa", str(write_suite("b/y.jsonl", [row(2), row(1)])))
    changed = load_suite("qa", str(write_suite("c.jsonl", [row(1), row(2, prompt="Question 2!")])))
    assert first.content_hash == moved.content_hash
    assert first.content_hash != changed.content_hash


def test_alias_of_a_domain_gives_the_same_hash(write_suite, row):
    rows = {"metric": "exact_match", "meta": {"final_answer": "1"}}
    ours = load_suite("math", str(write_suite("a.jsonl", [row(1, domain="math", **rows)])))
    public = [row(1, domain="math_reasoning", **rows)]
    assert ours.content_hash == load_suite("math", str(write_suite("b.jsonl", public))).content_hash


def test_empty_suite_is_an_error(write_suite):
    with pytest.raises(DataError, match="has no items"):
        load_suite("qa", str(write_suite("empty.jsonl", [])))


def test_mixed_metrics_are_refused(write_suite, row):
    path = write_suite("mixed.jsonl", [row(1), row(2, metric="rougeL"), row(3, metric=None)])
    with pytest.raises(DataError, match="mixes the metrics f1, rougeL"):
        load_suite("qa", str(path))


def test_items_without_metric_are_kept_but_not_scored(write_suite, row):
    path = write_suite("part.jsonl", [row(1), row(2, metric=None, reference=None)])
    suite = load_suite("qa", str(path))
    assert (len(suite.items), suite.metric) == (2, "f1")
    assert [item.id for item in suite.scored_items] == ["qa/1"]


def test_select_keeps_the_order_asked_for():
    items = [SuiteItem(str(i), "qa", ("q",)) for i in range(3)]
    suite = Suite.of("s", "qa", items, "memory")
    assert [item.id for item in suite.select(["2", "0"])] == ["2", "0"]
    with pytest.raises(DataError, match=r"'s' has no item '7' \(1 of 2"):
        suite.select(["0", "7"])


def test_first_turn_and_its_reference_of_a_conversation():
    item = SuiteItem("a", "chat", ("one", "two"), ("", "second"))
    assert (item.prompt, item.alternatives) == ("one", ())
    assert SuiteItem("a", "chat", ("one", "two"), ("first", "")).alternatives == ("first",)
    assert SuiteItem("a", "qa", ("one",), ("x", "y")).alternatives == ("x", "y")


def conversation(row, number, category):
    changes = {"domain": "mt_bench", "metric": None, "reference": None}
    return row(number, **changes, meta={"category": category})


def test_a_public_set_is_found_by_name_where_domains_are(write_suite, row, isolated):
    rows = [conversation(row, 1, "writing"), conversation(row, 2, "math")]
    path = write_suite("clone/shared/data/spec_bench/mt_bench.jsonl", rows)
    suite = load_suite("chat", "spec_bench")
    assert (suite.name, suite.source) == ("spec_bench/mt_bench", str(path))
    assert load_suite("chat", suite.source).items == suite.items


@pytest.mark.usefixtures("isolated")
def test_packaged_prompts_stand_in_for_a_public_set_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        suite = load_suite("math", "gsm8k")
    assert suite.name == "builtin/math"
    assert "public set gsm8k is not here: packaged math prompts stand in" in caplog.text
    assert load_suite("math", "gsm8k", Path("builtin")).name == "builtin/math"


@pytest.mark.usefixtures("isolated")
def test_a_name_that_is_no_public_set_is_refused_with_the_nearest():
    with pytest.raises(DataError, match=r"'gsm8' does not exist \(did you mean 'gsm8k"):
        load_suite("math", "gsm8")
    with pytest.raises(DataError, match=r"'gsm8k' has no questions of domain 'qa': it has math"):
        load_suite("qa", "gsm8k")


@pytest.mark.usefixtures("isolated")
def test_one_category_of_a_suite_reads_back_and_has_a_hash_of_its_own(write_suite, row):
    categories = ["writing", "math", "writing"]
    rows = [conversation(row, number, name) for number, name in enumerate(categories)]
    write_suite("clone/shared/data/spec_bench/mt_bench.jsonl", rows)
    whole = load_suite("chat", "spec_bench")
    assert whole.categories == ("writing", "math")
    part = load_suite("chat", "spec_bench#writing")
    assert part.name == "spec_bench/mt_bench#writing"
    assert [item.id for item in part.items] == ["qa/0", "qa/2"]
    assert part.content_hash != whole.content_hash
    assert load_suite("chat", part.source).items == part.items
    with pytest.raises(DataError, match=r"no items of category 'law': it has writing, math"):
        load_suite("chat", "spec_bench#law")
    with pytest.raises(DataError, match=r"no items of category 'x': it has none"):
        load_suite("qa", "builtin#x")


def test_a_file_with_a_number_sign_in_its_name_is_a_file(write_suite, row):
    path = write_suite("mine/own#1.jsonl", [row(1)])
    assert load_suite("qa", str(path)).name == "own#1"
