"""An output token by token: its pieces, who wrote them, and what is said where none is known."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dashboards.outputs import load_output, tokens_of, tokens_table
from dashboards.queries import Question
from db.api.problems import ProblemError
from db.store import Store
from specdec_core.records import StepTrace
from tests.integration import store_examples as examples
from tests.integration.dashboard_client import make_client
from tests.unit.dashboards.examples import HOSTILE

# The prefill writes "a"; a step accepts two drafted tokens and adds its own, the next only that.
TRACE = StepTrace(drafted=(4, 4), depth=(4, 4), accepted=(2, 0), committed=(3, 1))


def sample(item_id: str = "de-1", **changes: Any) -> Any:
    values: dict[str, Any] = {
        "token_ids": (7, 8, 9, 10, 1),
        "text": "a bc\nd",
        "token_ends": (1, 3, 4, 6, 6),
        "step_seconds": (0.03, 0.01),
        "trace": TRACE,
    }
    return examples.sample(item_id, **(values | changes))


def stored(store: Store, **changes: Any) -> str:
    """A benchmark with one cell of two outputs; its run."""
    run = examples.make_run(store, kind="benchmark", name="bench")
    request = examples.request()
    samples = (sample(**changes), sample("de-2", **changes))
    store.evaluations.put(request, examples.result(request, samples=samples))
    (timed,) = examples.cell(run.id).samples
    items = (timed, timed.model_copy(update={"item_id": "de-2"}))
    store.benchmarks.put(examples.cell(run.id, evaluation_key=request.key, samples=items))
    store.runs.update(run.id, status="completed")
    return run.id


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    with make_client(store, tmp_path) as client:
        yield client


def test_every_token_has_its_piece_its_origin_and_its_step() -> None:
    found = [(t.text, t.origin, t.mark, t.step, t.step_ms) for t in tokens_of(sample())]
    assert found == [
        ("a", "prefill", "P", 0, None),
        (" b", 1, "1", 1, 30.0),
        ("c", 2, "2", 1, 30.0),
        ("\nd", "bonus", "B", 1, 30.0),
        ("", "bonus", "B", 2, 10.0),
    ]


def test_deep_drafts_share_a_shade_and_keep_their_mark() -> None:
    deep = StepTrace(drafted=(8,), depth=(8,), accepted=(7,), committed=(8,))
    given = sample(token_ids=tuple(range(9)), token_ends=(), step_seconds=(), trace=deep)
    tokens = list(tokens_of(given))
    assert [(t.mark, t.shade) for t in tokens[4:8]] == [
        ("4", "draft-4"),
        ("5", "draft-5"),
        ("6", "draft-5"),
        ("7", "draft-5"),
    ]
    assert [t.text for t in tokens] == [None] * 9


def test_the_page_colours_the_text_and_says_the_same_without_colour(
    client: TestClient, store: Store
) -> None:
    run_id = stored(store)
    html = client.get(f"/outputs?run={run_id}").text
    assert '<span class="token prefill" title="prefill">a<sup>P</sup></span>' in html
    assert 'title="draft, depth 2, step 1">c<sup>2</sup></span>' in html
    assert "target&#39;s own token" in html
    for legend in ("the prefill<sup>P", "draft, depth 5 or deeper<sup>5", "own token<sup>B"):
        assert legend in html, legend
    assert "<td>draft, depth 1</td>" in html
    assert 'item=de-2"' in html
    assert f"/outputs?run={run_id}" in client.get(f"/leaderboard?run={run_id}").text
    for link in {part.split('"')[0] for part in html.split('href="/')[1:]}:
        assert client.get("/" + link.replace("&amp;", "&")).status_code == 200, link


def test_tokens_download_as_csv(client: TestClient, store: Store) -> None:
    run_id = stored(store)
    text = client.get(f"/dashboards/tokens.csv?run={run_id}&item=de-2").text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["origin"] for row in rows] == ["prefill", "1", "2", "bonus", "bonus"]
    assert (rows[0]["run_id"], rows[0]["item_id"], rows[3]["text"]) == (run_id, "de-2", "\nd")


def test_outputs_of_former_versions_show_their_text_and_say_what_is_missing(
    client: TestClient, store: Store
) -> None:
    stored(store, token_ends=(), step_seconds=())
    html = client.get("/outputs").text
    assert "without the places where its tokens end" in html
    assert "a bc" in html
    output = load_output(store, Question())
    assert output is not None
    assert [row[3].text for row in tokens_table(output).rows][:2] == ["prefill", "draft, depth 1"]


def test_hostile_text_is_escaped(client: TestClient, store: Store) -> None:
    ends = (1, 2, 3, 4, len(HOSTILE))
    stored(store, text=HOSTILE, token_ends=ends)
    html = client.get("/outputs").text
    assert "<script>alert" not in html
    assert "<img" not in html


def test_nothing_to_show_and_what_is_not_stored(client: TestClient, store: Store) -> None:
    assert "No output to show" in client.get("/outputs").text
    assert client.get("/dashboards/tokens.csv").status_code == 404
    run_id = stored(store)
    for query in ("item=x", "domain=x", "drafter=x", "run=x"):
        url = f"/outputs?{query}" if query == "run=x" else f"/outputs?run={run_id}&{query}"
        assert client.get(url).status_code == 404, query
    with pytest.raises(ProblemError, match="no stored output for item 'x'"):
        load_output(store, Question(item="x"))
