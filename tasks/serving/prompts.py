"""Token ids of what users ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from specdec_core.data.records import SuiteItem
from specdec_core.data.templates import chat_text, get_template, render_prompts
from specdec_core.errors import ConfigError
from specdec_core.models.target import Target


def plain_ids(target: Target, text: str) -> tuple[int, ...]:
    """Return the ids of a prompt as it stands, with the tokenizer's own opening token.

    Raises:
        ConfigError: if the text is not valid Unicode.
    """
    (ids,) = target.tokenizer([_checked(text)])["input_ids"]
    return tuple(ids)


def chat_ids(target: Target, messages: Sequence[dict[str, Any]]) -> tuple[int, ...]:
    """Return the ids of a conversation that the target is to answer.

    Raises:
        ConfigError: if the tokenizer has no chat template, or it refuses the conversation, or
            that is not valid Unicode.
    """
    if target.kind != "chat":
        raise ConfigError("this model has no chat template: use /v1/completions")
    try:
        text = chat_text(target.tokenizer, messages)
    except TemplateError as error:
        raise ConfigError(f"the model's chat template refuses the messages: {error}") from error
    (ids,) = target.tokenizer([_checked(text)], add_special_tokens=False)["input_ids"]
    return tuple(ids)


def domain_ids(
    target: Target, text: str, domain: str | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the ids of a prompt asked as the suite of `domain` is, and its stop strings.

    That is how the domain's profile was measured. Without a domain a chat model is asked through
    its chat template, and a base model goes on with the text.

    Raises:
        ConfigError: if the text is not valid Unicode.
    """
    template = get_template(domain or "", target.kind)
    item = SuiteItem(id="prompt", domain=domain or "none", turns=(_checked(text),))
    rendered = render_prompts([item], template, target.tokenizer)
    return rendered.ids[0], template.stop_strings


def _checked(text: str) -> str:
    """Return `text` if tokenizers can read it: JSON and command lines can hold half characters."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the prompt is not valid Unicode at character {error.start}: send UTF-8"
        ) from error
    return text
