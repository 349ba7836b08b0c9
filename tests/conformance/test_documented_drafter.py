"""The drafter that the documentation shows is a whole one."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from specdec_core.decoding import DRAFTERS
from tests.conformance.drafter_conformance import DrafterConformance

_PAGE = Path(__file__).parents[2] / "docs" / "adding-a-drafter.md"


def _documented() -> ModuleType:
    """Return the page's first block of code as a module; its drafter registers itself."""
    module = ModuleType("documented_drafter")
    [code, *_] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    sys.modules[module.__name__] = module  # where annotations are looked up
    exec(compile(code, str(_PAGE), "exec"), module.__dict__)
    return module


class TestDocumentedDrafter(DrafterConformance):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def documented(cls) -> Iterator[None]:
        """Register the drafter for these tests alone: others count the product's methods."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DRAFTERS, "_classes", dict(DRAFTERS._classes))
            cls.config = _documented().SuccessorChain()
            yield


def test_the_example_stays_short():
    [code, *_] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 60
