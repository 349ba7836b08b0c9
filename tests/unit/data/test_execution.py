"""Programs are run with limits and cannot pass by leaving early."""

import os
import time
from pathlib import Path

import pytest

from specdec_core.data.execution import ExecutionLimits, passes


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("assert 1 + 1 == 2", True),
        ("assert 1 + 1 == 3", False),
        ("this is no program", False),
        ("raise SystemExit(0)", False),
        ("import os; os._exit(0)", False),
        ("input()", False),
        ("bytearray(1 << 31)", False),
        ("print('x' * 10_000_000)", True),
        ("import numpy", False),
        ("if __name__ == '__main__':\n    raise ValueError", True),
        ("def f(n):\n    return f(n)\nf(1)", False),
        ("x = '\ud800'", True),
    ],
)
def test_outcome(program, expected):
    assert passes(program) is expected


def test_endless_loop_is_stopped_by_the_processor_limit():
    assert not passes("while True:\n    pass", ExecutionLimits(cpu_s=1.0))


def test_sleeping_program_and_its_children_are_killed(tmp_path):
    note = tmp_path / "pid"
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    assert not passes(program, ExecutionLimits(wall_s=3.0))
    assert _is_gone(int(note.read_text()))


def test_folder_is_temporary_and_environment_is_not_inherited(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    note = tmp_path / "folder"
    program = (
        "import os\nassert 'SECRET' not in os.environ\nopen('left.txt', 'w').write('x')\n"
        f"open({str(note)!r}, 'w').write(os.getcwd())\n"
    )
    assert passes(program)
    assert not Path(note.read_text()).exists()


def test_order_of_sets_is_the_same_in_every_run(tmp_path):
    orders = set()
    for run in range(3):
        note = tmp_path / str(run)
        assert passes(f"open({str(note)!r}, 'w').write(str(set('abcdefgh')))")
        orders.add(note.read_text())
    assert len(orders) == 1


def _is_gone(pid: int) -> bool:
    """True once the process has ended, or waits only for its parent to collect it."""
    for _ in range(50):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
