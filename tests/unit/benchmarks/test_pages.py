"""The tables of README and docs/measured.md are those of the stored results."""

import pytest

from benchmarks import pages


def test_readme_and_page_show_what_the_result_files_hold():
    results = pages.load_results()
    readme = pages.README.read_text()
    assert readme == pages.readme_with_figures(readme, results), "run python -m benchmarks.pages"
    assert pages.PAGE.read_text() == pages.measured_page(results), "run python -m benchmarks.pages"


def test_a_readme_without_marks_is_refused():
    with pytest.raises(ValueError, match="README needs the lines"):
        pages.readme_with_figures("# No table\n", {})
