"""The drafter that the documentation shows is a whole one."""

import re
import sys
from pathlib import Path
from types import ModuleType

from tests.conformance.drafter_conformance import DrafterConformance

_PAGE = Path(__file__).parents[2] / "docs" / "adding-a-drafter.md"


def _documented() -> ModuleType:
    """Return the page's first block of code as a module, made once."""
    module = ModuleType("documented_drafter")
    [code, *_] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    sys.modules[module.__name__] = module  # where annotations are looked up
    exec(compile(code, str(_PAGE), "exec"), module.__dict__)
    return module


class TestDocumentedDrafter(DrafterConformance):
    config = _documented().SuccessorChain()


def test_the_example_stays_short():
    [code, *_] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 60
