"""The comparison with released code: how steps are pooled, and that the docs show the figures."""

import inspect
import json
from pathlib import Path

import pytest

from benchmarks import acceptance
from benchmarks.acceptance import Counts, table
from benchmarks.common import RESULTS
from benchmarks.released.comparisons import Comparison
from benchmarks.suites import SPEC_BENCH
from specdec_core.config.drafters import parse_drafter
from specdec_core.decoding import make_drafter
from specdec_core.decoding.drafters import lookahead, suffix_automaton, token_recycling
from specdec_core.records import StepTrace
from specdec_core.tree import static_tree

_DOCS = Path(__file__).parents[3] / "docs" / "methods.md"


def cells(first, others):
    """Return one request per suite: `first` on the first suite, `others` on the five others."""
    return {suite: [others if index else first] for index, suite in enumerate(SPEC_BENCH)}


def test_a_prompt_that_is_a_step_adds_an_entry_of_one_token():
    trace = StepTrace(drafted=(4, 2), depth=(4, 2), accepted=(3, 0), committed=(4, 1))
    assert acceptance._counts(trace, "same") == Counts(2, 3, 6, own_steps=2, own_tokens=5)
    assert acceptance._counts(trace, "prompt is a step") == Counts(2, 3, 6, 3, 6)


def test_steps_of_all_suites_are_pooled():
    # Ours: 10 steps with 20 accepted, then five times 2 steps with none: 20 steps, 40 tokens.
    # The release: six times 5 steps with 5 accepted: 30 steps, 60 tokens; and one more entry each.
    comparison = Comparison(lambda _: None, ("prompt-lookup",), "prompt is a step")
    figures = acceptance._figures(
        "method",
        comparison,
        {
            "method release": cells(Counts(5, 5, 50, 6, 11), Counts(5, 5, 50, 6, 11)),
            "method prompt-lookup": cells(Counts(10, 20, 60, 10, 30), Counts(2, 0, 8, 2, 2)),
        },
    )
    ours = figures["ours"]["prompt-lookup"]
    assert ours["mean_accepted_tokens"] == 2.0
    assert ours["by_suite"][SPEC_BENCH[0]] == 3.0
    assert ours["candidates_per_step"] == 5.0
    assert figures["release"]["mean_accepted_tokens"] == 2.0
    assert figures["release"]["as_it_counts"] == pytest.approx(66 / 36)
    assert ours["over_release"]["estimate"] == 1.0


def test_a_cell_is_kept_by_all_that_its_drafter_drafts_with():
    drafter = make_drafter(parse_drafter("suffix-automaton"))
    found = acceptance._sources(drafter)
    # Its own module, its fallback's, and what that one fills, which it does not import itself.
    for module in (suffix_automaton, token_recycling, static_tree):
        assert inspect.getsource(module) in found
    assert inspect.getsource(lookahead) not in found


def test_the_docs_show_every_stored_comparison():
    figures = json.loads((RESULTS / "acceptance.json").read_text())["figures"]
    shown = _DOCS.read_text()
    for row in table(figures):
        assert row in shown
