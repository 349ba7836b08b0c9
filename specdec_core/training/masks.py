r"""Conversations as token ids, and which of these are responses.

A response is what the target writes behind the generation prompt of its chat template, the token
that ends its turn included: the draft must learn to end. Line breaks and headers that the
template puts around turns are no responses.

    <|im_start|> user \n Hi <|im_end|> \n <|im_start|> assistant \n | Hello ! <|im_end|> | \n
                                                                      |   response        |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from specdec_core.data.records import SuiteItem
from specdec_core.data.templates import Template, Tokenizer, chat_text, get_template, render_prompts
from specdec_core.errors import ConfigError, DataError
from specdec_core.hashing import json_hash
from specdec_core.records import ModelKind
from specdec_core.training.prompts import Message, Prompt
from specdec_core.training.spans import Span


@dataclass(frozen=True, slots=True)
class Question:
    """One prompt as the target is asked.

    Attributes:
        token_ids: Of the whole prompt, generation prompt included.
        prefix_ids: Its beginning that the template alone decides; may be empty.
        template: Of the prompt's domain; says which texts end an answer.
    """

    token_ids: tuple[int, ...]
    prefix_ids: tuple[int, ...]
    template: Template


@dataclass(frozen=True, slots=True)
class Conversation:
    """A finished conversation: token ids, and the spans of its responses."""

    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]


def serving_hash(tokenizer: Tokenizer, kind: ModelKind, domains: Iterable[str]) -> str:
    """Hex SHA-256 over everything that turns prompts of these domains into text.

    Another chat template, another format of a domain or other template variables give another
    hash; the tokenizer's own identity is not part of it.
    """
    own = tokenizer.chat_template if kind == "chat" else None
    content = {
        "chat_template": own,
        "templates": sorted(get_template(domain, kind).hash for domain in set(domains)),
    }
    return json_hash(content)


def ask(tokenizer: Tokenizer, kind: ModelKind, prompt: Prompt) -> Question:
    """Return the first question of a prompt, as an evaluation of its domain would ask it.

    Raises:
        ConfigError: if it is a conversation and the model has no chat template.
    """
    template = get_template(prompt.domain, kind)
    if prompt.is_plain:
        text = prompt.messages[0].content
        rendered = render_prompts(
            [SuiteItem(prompt.id, prompt.domain, (text,))], template, tokenizer
        )
        return Question(rendered.ids[0], rendered.prefix_ids, template)
    return ask_again(tokenizer, kind, prompt, prompt.messages)


def ask_again(
    tokenizer: Tokenizer, kind: ModelKind, prompt: Prompt, messages: Sequence[Message]
) -> Question:
    """Return the question that continues a conversation, rendered as a server would.

    Raises:
        ConfigError: if the model has no chat template.
    """
    _require_chat(kind, prompt)
    ids = _encode(tokenizer, chat_text(tokenizer, _as_dicts(messages)))
    return Question(ids, (), get_template(prompt.domain, kind))


def first_message(kind: ModelKind, prompt: Prompt) -> Message:
    """Return the first user turn as the template of its domain words it."""
    text = prompt.messages[0].content
    return Message(role="user", content=get_template(prompt.domain, kind).item_text(text))


def mask_conversation(
    tokenizer: Tokenizer, messages: Sequence[Message], stop_ids: Collection[int], *, name: str
) -> Conversation:
    """Return a finished conversation with the spans of its responses, found exactly.

    The conversation is rendered up to every response, with its opening, and up to its end; each
    of these must be the beginning of the whole, in text and in token ids. Where the template
    trims a response, its mask covers what is left.

    Args:
        tokenizer: Brings the chat template.
        messages: Turns, oldest first; at least one is an answer.
        stop_ids: Tokens that end a response at serving.
        name: Of the conversation, for messages.

    Raises:
        ConfigError: if the template renders the beginning of a conversation otherwise than the
            whole, or ends responses with no stop token.
        DataError: if a response has no text, or tokens reach over its border.
    """
    if tokenizer.chat_template is None:
        raise ConfigError(
            f"conversation {name!r} has answers, but the tokenizer has no chat template: give "
            "prompts alone, or add a chat template to the model folder"
        )
    turns = _as_dicts(messages)
    text = chat_text(tokenizer, turns, is_open=False)
    ids = _encode(tokenizer, text)
    spans: list[Span] = []
    for index, turn in enumerate(messages):
        if turn.role != "assistant":
            continue
        opening = chat_text(tokenizer, turns[:index])
        ending = chat_text(tokenizer, turns[: index + 1], is_open=False)
        start = _prefix_length(tokenizer, opening, text, ids, name)
        stop = _prefix_length(tokenizer, ending, text, ids, name)
        last = max((at for at in range(start, stop) if ids[at] in stop_ids), default=None)
        if last is None:
            raise ConfigError(
                f"the chat template ends answer {index} of conversation {name!r} with none of the "
                f"stop tokens {sorted(stop_ids)}: a draft would not learn where to end; correct "
                "the template, or the stop tokens of the model's generation_config.json"
            )
        if last == start:
            raise DataError(
                f"answer {index} of conversation {name!r} is empty once the chat template has "
                "trimmed it: leave the conversation out"
            )
        spans.append((start, last + 1))
    return Conversation(ids, tuple(spans))


def _prefix_length(
    tokenizer: Tokenizer, part: str, text: str, ids: tuple[int, ...], name: str
) -> int:
    """Return how many of `ids`, what `text` is, are its beginning `part`."""
    if not text.startswith(part):
        raise ConfigError(
            f"the chat template renders the beginning of conversation {name!r} otherwise than the "
            "whole (some drop the thoughts of earlier answers, or open answers with text that a "
            "finished one lacks): its responses cannot be found; give prompts without answers and "
            "let the target write them"
        )
    own = _encode(tokenizer, part)
    if ids[: len(own)] != own:
        raise DataError(
            f"a token of conversation {name!r} reaches over the border of an answer, so that its "
            "mask cannot be exact: take white space from the answer's beginning, or let the "
            "target write it"
        )
    return len(own)


def _encode(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """Return the ids of text in which the chat template has written the special tokens."""
    encoded = cast(Any, tokenizer([text], add_special_tokens=False)["input_ids"])
    return tuple(encoded[0])


def _as_dicts(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [message.model_dump() for message in messages]


def _require_chat(kind: ModelKind, prompt: Prompt) -> None:
    if kind != "chat":
        raise ConfigError(
            f"prompt {prompt.id!r} is a conversation, but the model has no chat template: give "
            "single prompts, or a chat model"
        )
