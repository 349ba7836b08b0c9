"""The report for people: every figure with its interval, in the terminal and in Markdown."""

import io

from rich.console import Console

from flows import report as texts
from flows.progress import describe, percent
from flows.services.processes import ProcessIdentity
from flows.services.state import SupervisorState
from flows.views import TableView, code_block
from tasks.report import Progress
from tests.unit.flows.report_examples import make_report

STATE = SupervisorState(
    instance="0" * 32,
    process=ProcessIdentity(pid=1, started=0.0),
    prefect_api_url="http://127.0.0.1:4200/api",
    mlflow_url="http://127.0.0.1:5000",
    api_url="http://127.0.0.1:8000",
)


def terminal_text() -> str:
    report = make_report()
    console = Console(file=io.StringIO(), width=100)
    console.print(texts.render(report, texts.links(report, STATE, "flow-9")), soft_wrap=True)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_dense_against_sparse_has_an_interval_for_every_figure() -> None:
    rows = texts.comparison_table(make_report()).rows
    assert rows == (
        ("acceptance length, tokens per step", "2.050", "2.255", "+10.0% [+5.0%, +15.0%]"),
        ("task metric", "0.1467", "0.1422", "-3.1% [-8.0%, +2.0%]"),
        ("tokens per second", "41.5", "47.3", "1.140x [1.100, 1.180]"),
        ("tokens of use per second", "40.0", "44.0", "1.100x [1.050, 1.150]"),
        ("memory of a request, MB", "300.0", "285.0", "-5.0% [-5.1%, -4.9%]"),
        ("sparse with drafter over dense without one", "-", "-", "1.620x [1.500, 1.700]"),
    )


def test_missing_comparison_is_said() -> None:
    table = texts.comparison_table(make_report(heldout=None))
    assert "nothing was compared on held-out items" in table.title
    assert table.rows[0] == ("acceptance length, tokens per step", "2.000", "2.400", "+20.0%")


def test_terminal_shows_result_decision_and_addresses() -> None:
    text = terminal_text()
    for expected in (
        "translation: skipping a3 speeds decoding up by 14 %",
        "skip set: a3",
        "decision: a3 holds",
        "profile: id 5, version 2, new",
        "work: 4 evaluations done, 1 answered from the store, 1 failed; 12.5 s",
        "dashboard: http://127.0.0.1:8000/?run=run-1",
        "Prefect: http://127.0.0.1:4200/runs/flow-run/flow-9",
        "MLflow: http://127.0.0.1:5000",
        "REST answer: http://127.0.0.1:8000/api/v1/profiles/resolve"
        "?target=pypi%3Agemma3-270m&domain=translation",
    ):
        assert expected in text


def test_markdown_has_the_same_figures() -> None:
    markdown = texts.to_markdown(make_report(), texts.links(make_report(), STATE))
    assert markdown.startswith("# translation: skipping a3")
    assert "| tokens per second | 41.5 | 47.3 | 1.140x [1.100, 1.180] |" in markdown
    assert "- [MLflow](http://127.0.0.1:5000)" in markdown


def test_without_services_there_are_no_addresses() -> None:
    assert texts.links(make_report(), None) == ()


def test_nearest_misses_come_first_and_failures_are_none() -> None:
    assert [row[0] for row in texts.near_miss_table(make_report()).rows] == ["a1", "a2"]
    assert texts.near_miss_table(make_report()).rows[0][-1] == "short by 5.0%"


def test_level_table_keeps_failed_configurations_with_their_reason() -> None:
    (table,) = texts.level_tables(make_report())
    assert table.rows[-1] == ("a4", *("-",) * 6, "failed: MemoryError: too large")
    assert table.to_records()[0]["state"] == "within tolerance"


def test_cases_show_both_answers_unchanged() -> None:
    markdown = texts.cases_markdown(make_report())
    assert "### Worse: de-7 (dense 1.000, sparse 0.250)" in markdown
    assert "````text\n```Morning```\n````" in markdown
    assert "no cases" in texts.cases_markdown(make_report(heldout=None))


def test_code_block_cannot_be_left_from_inside() -> None:
    assert code_block("a ```` b") == "`````text\na ```` b\n`````"


def test_markdown_cells_cannot_break_the_table() -> None:
    view = TableView("t", ("a", "b"), (("x|y", "1\n2"),))
    assert view.to_markdown() == "### t\n\n| a | b |\n| --- | --- |\n| x\\|y | 1 2 |"


def test_progress_is_a_share_of_the_work_known_so_far() -> None:
    assert percent(Progress(stage="level", done=3, total=4)) == 75.0
    assert percent(Progress(stage="level", done=0, total=0)) == 0.0
    assert describe(Progress(stage="level", done=3, total=4, text="a3")) == "level: 3 of 4, a3"
