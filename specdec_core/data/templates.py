"""Prompt templates per domain and model kind, and the token ids of prompts.

A template also says where an answer ends and how it is read (`extraction`): both are part of the
metric, so both are part of the template's hash. Of a conversation only the first user turn is
asked; later turns would need earlier answers, and these must be the same for every method.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from specdec_core.data.records import SuiteItem
from specdec_core.data.shots import BASE_FORMATS, BASE_HEADERS
from specdec_core.errors import ConfigError
from specdec_core.hashing import json_hash
from specdec_core.records import ModelKind

ExtractionRule = Literal["text", "number", "letter", "code"]

# Raise it when the meaning of a field or an extraction rule changes.
_REVISION = 1

# Variables of chat templates whose default depends on the day, or that switch on long reasoning.
_CHAT_VARIABLES: Mapping[str, Any] = {"date_string": "26 Jul 2024", "enable_thinking": False}

_MAX_ARTICLE_WORDS = 320
_WORD = re.compile(r"\S+")


class Tokenizer(Protocol):
    """What is used of a Hugging Face fast tokenizer."""

    chat_template: Any

    def __call__(self, text: list[str], *, add_special_tokens: bool = True) -> Mapping[str, Any]:
        """Return token ids under the key ``input_ids``, one list per text."""
        ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], **options: Any
    ) -> str | list[int]:
        """Return a conversation as text where ``tokenize=False`` is given."""
        ...


@dataclass(frozen=True, slots=True)
class Template:
    """How items of one domain are asked of one kind of model, and how answers are read.

    Attributes:
        domain: Domain that the template is for.
        kind: ``base`` continues text; ``chat`` goes through the tokenizer's chat template.
        item_format: Text of one item, with ``{text}``, ``{context}`` and ``{instruction}``.
        pattern: Regular expression that takes a whole prompt apart into groups of these names. A
            prompt that it does not match is all ``text``.
        header: Text before every item, worked examples for base models.
        stop_strings: Texts that end an answer.
        extraction: Which part of the trimmed answer the metric compares.
        max_prompt_words: Longest ``text`` of an item, in words, cut at the end of a word; None
            for no limit. Nothing else is ever cut.
    """

    domain: str
    kind: ModelKind
    item_format: str
    pattern: str = ""
    header: str = ""
    stop_strings: tuple[str, ...] = ()
    extraction: ExtractionRule = "text"
    max_prompt_words: int | None = None

    @property
    def hash(self) -> str:
        """Hex SHA-256 over everything that determines the prompt and the reading of answers."""
        content = {**asdict(self), "chat_variables": dict(_CHAT_VARIABLES), "revision": _REVISION}
        return json_hash(content)

    def item_text(self, prompt: str) -> str:
        """Return the text of one item without the header."""
        match = re.fullmatch(self.pattern, prompt, re.DOTALL)
        groups = match.groupdict("") if match else {"text": prompt}
        fields = {"instruction": "", "context": "", **groups}
        fields["text"] = _first_words(fields["text"], self.max_prompt_words)
        return self.item_format.format(**fields)


@dataclass(frozen=True, slots=True)
class RenderedPrompts:
    """Token ids of prompts.

    `prefix_ids` opens every list of `ids` and is shorter than each of them; it covers the
    template's header as far as the tokenizer keeps it apart from the item, and may be empty.
    """

    prefix_ids: tuple[int, ...]
    ids: tuple[tuple[int, ...], ...]


# How public sets and the packaged ones write their prompts.
_PATTERNS = {
    "translation": r"(?P<instruction>Translate German to English:\s*)?(?P<text>.*)",
    "summarization": r"(?P<instruction>Summarize[^:\n]{0,60}:\s*)?(?P<text>.*)",
    "rag": r"(?:Answer the question[^\n]*\n\s*)?(?:(?P<context>.*\S)\s*\n)?(?:Question:\s*)?"
    r"(?!Answer:)(?P<text>[^\n]+?)(?:\s*Answer:)?\s*",
    "mmlu": r"(?P<instruction>The following is a multiple choice question[^\n]*\n\s*)?"
    r"(?P<text>.*?)(?:\s*Answer:)?\s*",
}
_BASE_STOPS = {
    "translation": ("\n",),
    "summarization": ("\n\n", "\nArticle:"),
    "qa": ("\n",),
    "rag": ("\n",),
    "mmlu": ("\n",),
    "math": ("\n\n", "\nQuestion:"),
    "code": ("\ndef ", "\nclass ", "\nif __name__", "\nprint("),
    "chat": ("\nUser:",),
}
_EXTRACTIONS: Mapping[str, ExtractionRule] = {"mmlu": "letter", "math": "number", "code": "code"}
_CHAT_FORMATS = {
    "qa": "Answer the question with a few words only.\n\n{text}",
    "rag": "{context}\n\n{text}\nAnswer the question with a few words only.",
    "mmlu": "{instruction}{text}\nAnswer:",
    "code": "Complete this Python program. Answer with code only.\n\n{text}",
}


def get_template(domain: str, kind: ModelKind) -> Template:
    """Return the template of a domain for a kind of model.

    A domain of the user's own is asked as its prompts stand, and the whole answer is compared.

    Raises:
        ConfigError: if `kind` is neither ``base`` nor ``chat``.
    """
    if kind not in ("base", "chat"):
        raise ConfigError(f"model kind {kind!r} is unknown: use 'base' or 'chat'")
    extraction = _EXTRACTIONS.get(domain, "text")
    pattern = _PATTERNS.get(domain, "")
    max_words = _MAX_ARTICLE_WORDS if domain == "summarization" else None
    if kind == "chat":
        return Template(
            domain,
            kind,
            _CHAT_FORMATS.get(domain, "{instruction}{text}"),
            pattern=pattern,
            extraction=extraction,
            max_prompt_words=max_words,
        )
    return Template(
        domain,
        kind,
        BASE_FORMATS.get(domain, "{text}"),
        pattern=pattern,
        header=BASE_HEADERS.get(domain, ""),
        stop_strings=_BASE_STOPS.get(domain, ()),
        extraction=extraction,
        max_prompt_words=max_words,
    )


def render_prompts(
    items: Sequence[SuiteItem], template: Template, tokenizer: Tokenizer
) -> RenderedPrompts:
    """Return the token ids of the items' prompts, and the prefix that they share.

    Each prompt is tokenised as a whole and the prefix is found among its ids, so that computing
    the prefix once never changes a token. The prefix depends on the template alone, unless a
    prompt ends within the header.

    Raises:
        ConfigError: if there are no items, or a chat template is needed and the tokenizer has
            none.
    """
    if not items:
        raise ConfigError("no items to render: give at least one")
    texts = [template.item_text(item.prompt) for item in items]
    if template.kind == "chat":
        full_texts = [_question_text(tokenizer, text) for text in texts]
        header = _common_start(_question_text(tokenizer, "a"), _question_text(tokenizer, "b"))
    else:
        full_texts = [template.header + text for text in texts]
        header = template.header
    # A chat template writes its own special tokens; for plain text the tokenizer's default holds.
    encoded = tokenizer([header, *full_texts], add_special_tokens=template.kind == "base")
    header_ids, *ids = (tuple(row) for row in encoded["input_ids"])
    return RenderedPrompts(_shared_prefix(header_ids, ids), tuple(ids))


def chat_text(
    tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], *, is_open: bool = True
) -> str:
    """Return a conversation as the text that its next answer follows.

    Args:
        tokenizer: Brings the chat template.
        messages: Turns with ``role`` and ``content``, oldest first.
        is_open: Whether the text ends with the opening of an answer.

    Raises:
        ConfigError: if the tokenizer has no chat template.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            "the tokenizer has no chat template: use kind 'base', or add a chat template to the "
            "model folder"
        )
    text = tokenizer.apply_chat_template(
        [dict(message) for message in messages],
        tokenize=False,
        add_generation_prompt=is_open,
        **_CHAT_VARIABLES,
    )
    return str(text)


def _question_text(tokenizer: Tokenizer, question: str) -> str:
    return chat_text(tokenizer, [{"role": "user", "content": question}])


def _common_start(first: str, second: str) -> str:
    pairs = zip(first, second, strict=False)
    return first[: next((i for i, (a, b) in enumerate(pairs) if a != b), len(first))]


def _shared_prefix(header: Sequence[int], ids: Sequence[Sequence[int]]) -> tuple[int, ...]:
    length = min(len(header), *(len(row) - 1 for row in ids))
    for row in ids:
        length = next((i for i in range(length) if row[i] != header[i]), length)
    return tuple(header[: max(length, 0)])


def _first_words(text: str, limit: int | None) -> str:
    if limit is None:
        return text
    for number, match in enumerate(_WORD.finditer(text), start=1):
        if number == limit:
            return text[: match.end()]
    return text
