"""The drafters that the documentation shows are whole ones."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from specdec_core.decoding import DRAFTERS
from tests.conformance.drafter_conformance import DrafterConformance

_PAGE = Path(__file__).parents[2] / "docs" / "adding-a-drafter.md"
_BLOCKS = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
# The block between them shows the test of the first.
SUCCESSORS, HIDDEN = _BLOCKS[0], _BLOCKS[2]


def _run(code: str) -> ModuleType:
    """Return a block of code as a module; its drafter registers itself."""
    module = ModuleType("documented_drafter")
    sys.modules[module.__name__] = module  # where annotations are looked up
    exec(compile(code, str(_PAGE), "exec"), module.__dict__)
    return module


class DocumentedConformance(DrafterConformance):
    """Subclass with a block of code and the name of the options in it."""

    code: str
    options: str

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def documented(cls) -> Iterator[None]:
        """Register the drafter for these tests alone: others count the product's methods."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DRAFTERS, "_classes", dict(DRAFTERS._classes))
            cls.config = getattr(_run(cls.code), cls.options)()
            yield


class TestDocumentedDrafter(DocumentedConformance):
    code = SUCCESSORS
    options = "SuccessorChain"


class TestDocumentedHiddenLookup(DocumentedConformance):
    code = HIDDEN
    options = "HiddenLookup"


@pytest.mark.parametrize("code", [SUCCESSORS, HIDDEN], ids=["successors", "hidden"])
def test_the_examples_stay_short(code):
    assert len(code.splitlines()) < 60
