"""The tables of README and of docs are those of the stored results."""

import re

import pytest

from benchmarks import pages, results_page, trainings_page


def test_readme_and_page_show_what_the_result_files_hold():
    results = pages.load_results()
    readme = pages.README.read_text()
    assert readme == pages.readme_with_figures(readme, results), "run python -m benchmarks.pages"
    assert pages.PAGE.read_text() == pages.measured_page(results), "run python -m benchmarks.pages"


def test_a_readme_without_marks_is_refused():
    with pytest.raises(ValueError, match="README needs the lines"):
        pages.readme_with_figures("# No table\n", {})


def test_the_page_of_searches_shows_what_the_exported_files_hold():
    documents = results_page.SEARCHES.load()
    text = pages.SEARCHED.read_text()
    assert text == pages.searched_page(text, documents), "run python -m benchmarks.pages"
    assert any(document.get("kind") == "tss-search" for document in documents.values())
    for name in documents:
        assert f"{name}.md)" in text
        assert (results_page.SEARCHES.folder / f"{name}.md").is_file()


def test_the_page_of_trainings_shows_what_the_exported_files_hold():
    documents = trainings_page.TRAININGS.load()
    text = pages.TRAINED.read_text()
    assert text == pages.trained_page(text, documents), "run python -m benchmarks.pages"
    for name in documents:
        assert f"{name}.md)" in text


@pytest.mark.parametrize("page", [pages.SEARCHED, pages.TRAINED], ids=lambda page: page.stem)
def test_links_and_pictures_of_a_page_lead_to_files(page):
    places = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert places
    assert [place for place in places if not (page.parent / place).is_file()] == []


def test_the_pages_of_results_are_linked():
    for page in (pages.README, pages.TRAINED.with_name("training.md")):
        assert "training-results.md)" in page.read_text()


def test_searches_of_a_target_share_their_tables_and_sweeps_have_their_own():
    def search(domain, target, acceptance):
        results = {"columns": ["domain", "acceptance"], "rows": [f"{domain} | {acceptance}"]}
        config = {
            "strategy": "tss",
            "drafter": "none",
            "units": "block",
            "beam": 4,
            "depth": 2,
            "tolerance": -0.05,
            "tolerance_acceptance": None,
            "tolerance_metric": 0.0,
            "max_new_tokens": 48,
        }
        figures = {
            "target": target,
            "config": config,
            "selection_ids": ["a", "b"],
            "heldout_ids": ["c"],
            "num_configurations": 7,
            "costs": {"num_evaluated": 9, "num_memoised": 1, "wall_s": 90.0},
            "tables": {"results": results},
        }
        return {
            "kind": "tss-search",
            "search": domain,
            "figures": figures,
            "finished_at": "2026-11-30T10:00:00+00:00",
        }

    answers = {"columns": ["strategy", "skip"], "rows": ["tss | 2,3"]}
    compared = {
        "kind": "tss-compare",
        "search": "qa",
        "figures": {"target": "t", "headline": "one holds", "tables": {"answers": answers}},
    }
    documents = {"a": search("qa", "t", 2.0), "b": search("math", "t", 1.5), "c": compared}
    lines = results_page.result_tables(documents).splitlines()
    where = "../benchmarks/results/searches"
    first = lines.index("| domain | acceptance |")
    assert lines[first + 2 : first + 4] == [
        f"| [qa]({where}/a.md) | 2.0 |",
        f"| [math]({where}/b.md) | 1.5 |",
    ]
    settings = (
        f"| [qa]({where}/a.md) | tss | `none` | block | 4, 2 | -5 %, +0 % | 2, 1 | 48 tokens | 7 "
        "| 9, 1 | 1.5 | 2026-11-30 |"
    )
    assert settings in lines
    assert lines.count("## t") == 1
    strategies = lines.index(f"### Strategies: [qa]({where}/c.md)")
    assert lines[strategies + 2] == "one holds."
    assert "| tss | 2,3 |" in lines[strategies:]


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match=r"docs/results\.md needs the lines"):
        pages.searched_page("# Results\n", {})
    with pytest.raises(ValueError, match=r"docs/training-results\.md needs the lines"):
        pages.trained_page("# Results\n", {})
