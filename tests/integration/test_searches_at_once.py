"""Searches that are killed, and several at once on one store: nothing is evaluated twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from db.store import Store
from specdec_core.config.settings import Settings
from specdec_core.models.tiny import write_tiny_checkpoint
from tasks.report import SearchReport
from tests import run_fixtures
from tests.table_evaluator import Control

pytestmark = [pytest.mark.ray, pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[2]
DRIVER = """
import sys
from pathlib import Path
from db.store import Store
from specdec_core.config.settings import Settings
from tasks.pool import pool_factory
from tasks.search import run_search
from tests.table_evaluator import TableEvaluator, config, workload

home, control = Path(sys.argv[1]), Path(sys.argv[2])
settings = Settings(home=home, cache=home, threads=1)
start = pool_factory(settings, TableEvaluator(control), is_inline=True)
with Store.open(settings.resolved_database_url) as store:
    report = run_search(config(), settings, store, start, prepare_workload=workload)
sys.stdout.write(report.answer.skip)
"""


store, control, settings = run_fixtures.store, run_fixtures.control, run_fixtures.settings


def start_driver(settings: Settings, control: Control) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(settings.home), str(control.folder)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("num_before", [1, 4, 8])
def test_a_killed_driver_continues_and_evaluates_every_key_once(
    settings: Settings, store: Store, control: Control, num_before: int
) -> None:
    (control.folder / "sleep").write_text("0.3")
    first = start_driver(settings, control)
    deadline = time.monotonic() + 90
    while store.evaluations.count("done") < num_before and time.monotonic() < deadline:
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    done_before = {row.key for row in store.evaluations.list(status="done", limit=None)}
    times_before = {row.key: row.created_at for row in store.evaluations.list(limit=None)}
    calls_before = len(control.calls)

    (control.folder / "sleep").write_text("0")
    second = start_driver(settings, control)
    output, _ = second.communicate(timeout=90)
    assert second.returncode == 0
    assert output == "2,3"
    assert not done_before & {key for key, _ in control.calls[calls_before:]}
    rows = store.evaluations.list(limit=None)
    assert all(row.status == "done" and row.attempts == 1 for row in rows)
    assert all(row.created_at == times_before[row.key] for row in rows if row.key in done_before)
    assert {run.status for run in store.runs.list()} == {"failed", "completed"}


def test_two_searches_at_once_share_the_work_and_evaluate_nothing_twice(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "sleep").write_text("0.1")
    both = [start_driver(settings, control) for _ in range(2)]
    assert [driver.communicate(timeout=120)[0] for driver in both] == ["2,3", "2,3"]
    assert {run.status for run in store.runs.list()} == {"completed"}
    reports = [SearchReport.model_validate(run.summary) for run in store.runs.list()]
    assert reports[0].levels == reports[1].levels
    assert reports[0].heldout == reports[1].heldout
    keys = [key for key, _ in control.calls]
    assert len(keys) == len(set(keys)) == store.evaluations.count("done")
    assert sum(report.costs.num_evaluated for report in reports) == len(keys)
    active = store.profiles.list(status="active")
    assert [profile.skip for profile in active] == ["2,3"]


def test_a_search_takes_over_what_a_killed_one_had_claimed(
    settings: Settings, store: Store, control: Control
) -> None:
    (control.folder / "sleep").write_text("0.5")
    both = [start_driver(settings, control) for _ in range(2)]
    deadline = time.monotonic() + 90
    while len({pid_of(line) for line in calls(control)}) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    killed, survivor = both
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (control.folder / "sleep").write_text("0")
    assert survivor.communicate(timeout=120)[0] == "2,3"
    (again, *_), *others = sorted(
        Counter(key for key, _ in control.calls).most_common(), key=lambda each: -each[1]
    )
    # Only what the killed one was doing had to be begun anew.
    assert {count for _, count in others} == {1}
    assert {pid_of(line) for line in calls(control) if line.startswith(again)} != {survivor.pid}
    assert all(row.status == "done" for row in store.evaluations.list(limit=None))


def calls(control: Control) -> list[str]:
    path = control.folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def pid_of(line: str) -> int:
    return int(line.split()[2])


def test_two_commands_at_once_on_a_real_model_evaluate_each_configuration_once(
    tmp_path: Path,
) -> None:
    folder = write_tiny_checkpoint(tmp_path / "model", num_layers=4)
    suite = tmp_path / "riddles.jsonl"
    suite.write_text(
        "".join(
            f'{{"id": "q{i}", "domain": "riddles", "prompt": "number {i} {i} {i}?", '
            f'"reference": "{i}", "metric": "f1", "meta": {{}}}}\n'
            for i in range(12)
        )
    )
    command = [
        *(sys.executable, "-m", "flows.cli", "search", "riddles", "--json"),
        *("--target", f"path:{folder}", "--suite", str(suite), "--units", "halves"),
        *("--beam", "2", "--depth", "2", "--num-selection", "4", "--num-heldout", "4"),
        *("--max-new-tokens", "8", "--tolerance", "-1"),
    ]
    home = tmp_path / "home"
    places = {"SPECDEC_HOME": str(home), "SPECDEC_CACHE": str(tmp_path / "cache")}
    environment = {**os.environ, **places, "SPECDEC_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    both = [
        subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=200)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    reports = [SearchReport.model_validate_json(output) for output in outputs]
    assert reports[0].levels == reports[1].levels
    with Store.open(Settings(home=home).resolved_database_url) as opened:
        rows = opened.evaluations.list(limit=None)
    assert all((row.status, row.attempts) == ("done", 1) for row in rows)
    assert sum(report.costs.num_evaluated for report in reports) == len(rows)
    # Dense and four halves of the two inner layers, and what two of them leave to be tried.
    assert len({row.request.skip for row in rows}) >= 1 + 4
