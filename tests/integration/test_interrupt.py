"""Ctrl-C while a command is still loading: one line, exit code 130, no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = "interrupted: what was finished is stored, run the command again\n"

# The command's own entry, interrupted by itself at a certain point.
PROGRAM = """
import importlib.abc, os, signal, sys
from flows.cli import main

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["specdec", "profiles", "list"]
sys.exit(main())
"""
DROPPED = """
import signal, sys
from flows.commands import execute as module
from flows.cli import main
from specdec_core.errors import SearchCancelledError

class Callback:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # Python drops what is raised here

def work(args):
    Callback()
    if not args.is_interrupted():
        return 0
    raise SearchCancelledError("stopped")

module._load = lambda _handler: work
sys.argv = ["specdec", "profiles", "list"]
sys.exit(main())
"""


def python(code: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "SPECDEC_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("module", ["flows.commands.parser", "pydantic", "sqlalchemy", "db.store"])
def test_an_interrupt_during_imports_is_one_line(module: str, tmp_path: Path) -> None:
    done = python(PROGRAM.format(module=module), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", LINE)


def test_an_interrupt_that_python_drops_ends_long_work_all_the_same(tmp_path: Path) -> None:
    done = python(DROPPED, tmp_path)
    assert done.returncode == 130
    assert "Exception ignored" in done.stderr
    assert done.stderr.endswith(LINE)
