"""Where an answer ends in generated text, and which part of it the metric compares."""

from __future__ import annotations

import re
from dataclasses import dataclass

from specdec_core.data.templates import Template

# A minus sign counts only where it cannot be the operator of a calculation.
NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")
LETTER = re.compile(r"\b[A-D]\b")
_FENCED = re.compile(r"```[^\n]*\n(?P<code>.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Extraction:
    """An answer, and the index in the generated text just behind it (0 where there is none)."""

    answer: str
    end: int


def find_stop(text: str, template: Template) -> int | None:
    """Return the index in `text` where the template's first stop string begins, or None.

    White space before the first other character is not searched: models open their answer
    with a space or a line break.
    """
    start = _opening_space(text)
    found = [text.find(stop, start) for stop in template.stop_strings]
    return min((index for index in found if index >= 0), default=None)


def extract_answer(text: str, template: Template) -> Extraction:
    """Return what the metric compares, and where in `text` it ends.

    The text is cut at the first stop string and stripped of white space around it. Of that the
    rule ``text`` takes everything, ``number`` the last number, ``letter`` the first letter A to D
    that stands alone, and ``code`` everything with its indentation, or the first fenced block
    if there is one.

    Args:
        text: Generated text, untrimmed, special tokens left out.
        template: The template that the prompt was made with.
    """
    trimmed = text[: find_stop(text, template)].rstrip()
    start = _opening_space(trimmed)
    if template.extraction == "code":
        return _code(trimmed)
    if template.extraction == "text":
        return Extraction(trimmed[start:], len(trimmed))
    if template.extraction == "letter":
        first = LETTER.search(trimmed, start)
        return Extraction(first[0], first.end()) if first else Extraction("", 0)
    numbers = list(NUMBER.finditer(trimmed, start))
    return Extraction(numbers[-1][0], numbers[-1].end()) if numbers else Extraction("", 0)


def _code(trimmed: str) -> Extraction:
    block = _FENCED.search(trimmed)
    if block is None:
        return Extraction(trimmed, len(trimmed))
    return Extraction(block["code"], block.end("code"))


def _opening_space(text: str) -> int:
    return len(text) - len(text.lstrip())
