"""Requests and answers in the shape of OpenAI's completions API, as far as it is served.

What cannot be served is refused, except where it is given at the value that means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from specdec_core.config.sampling import Sampling
from specdec_core.records import FinishReason
from specdec_core.serving.generator import TextAnswer

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "tools": ([],),
    "tool_choice": ("none",),
    "response_format": ({"type": "text"},),
    "stream_options": ({"include_usage": True}, {"include_usage": False}, {}),
    "store": (False,),
}


class _Asked(BaseModel):
    """What both kinds of request share; `domain` and the last three are not OpenAI's."""

    model_config = ConfigDict(extra="forbid")
    default_max_tokens: ClassVar[int | None] = None

    model: str
    max_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0.0, le=2.0)
    top_p: float | None = Field(None, gt=0.0, le=1.0)
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    presence_penalty: float | None = Field(None, ge=-2.0, le=2.0)
    user: str | None = None
    domain: str | None = Field(None, max_length=200, description="task domain, or 'auto'")
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0.0, le=1.0)
    repetition_penalty: float | None = Field(None, gt=0.0, le=10.0)

    n: Any = None
    logprobs: Any = None
    logit_bias: Any = None
    frequency_penalty: Any = None
    store: Any = None
    metadata: Any = None

    @model_validator(mode="after")
    def _refuse_what_is_not_served(self) -> _Asked:
        for name, neutral in _NEUTRAL.items():
            value = getattr(self, name, None)
            # 0 equals False and means something else: of `logprobs`, those of the chosen tokens.
            kind = isinstance(value, bool)
            is_neutral = any(value == one and isinstance(one, bool) == kind for one in neutral)
            if value is not None and not is_neutral:
                shown = " or ".join(str(one) for one in neutral)
                raise ValueError(f"{name}={value!r} is not served: leave it out, or give {shown}")
        if len(self.stop_strings) > 16 or any(not text for text in self.stop_strings):
            raise ValueError("stop takes at most 16 texts, none of them empty")
        return self

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """Texts that end the output."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the counts of tokens."""
        return bool((self.stream_options or {}).get("include_usage"))

    @property
    def wanted_tokens(self) -> int | None:
        """Longest output, tokens; None leaves it to the server."""
        return self.max_tokens or self.default_max_tokens

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen; temperature 1 unless said otherwise, as OpenAI's.

        What narrows the choice changes nothing where the likeliest token is taken.
        """
        temperature = 1.0 if self.temperature is None else self.temperature
        narrowing = ("top_p", "top_k", "min_p") if temperature else ()
        names = (*narrowing, "presence_penalty", "repetition_penalty")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return Sampling(temperature=temperature, **given)


class CompletionRequest(_Asked):
    """``POST /v1/completions``: one prompt, as text or token ids."""

    default_max_tokens = 16

    prompt: str | list[str] | list[int] | list[list[int]]
    best_of: Any = None
    echo: Any = None
    suffix: Any = None

    @model_validator(mode="after")
    def _one_prompt(self) -> CompletionRequest:
        is_many = isinstance(self.prompt, list) and not all(
            isinstance(part, int) for part in self.prompt
        )
        if not self.prompt or (is_many and len(self.prompt) != 1):
            raise ValueError("prompt: give one text or one list of token ids; others one by one")
        return self

    @property
    def single_prompt(self) -> str | list[int]:
        """The prompt, out of a list of one."""
        if isinstance(self.prompt, list) and not isinstance(self.prompt[0], int):
            return self.prompt[0]
        return self.prompt


class Message(BaseModel):
    """One turn of a conversation; of parts only text is served."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]]
    name: str | None = None

    @model_validator(mode="after")
    def _text_only(self) -> Message:
        parts = [] if isinstance(self.content, str) else self.content
        if any(
            part.get("type") != "text" or not isinstance(part.get("text"), str) for part in parts
        ):
            raise ValueError("content: only text is served, no images, sound or tools")
        return self

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part["text"] for part in self.content)


class ChatRequest(_Asked):
    """``POST /v1/chat/completions``: a conversation to go on with."""

    messages: list[Message] = Field(min_length=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    top_logprobs: Any = None
    tools: Any = None
    tool_choice: Any = None
    response_format: Any = None

    @property
    def wanted_tokens(self) -> int | None:
        """Longest output, tokens; None leaves it to the server."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def turns(self) -> list[dict[str, str]]:
        """The messages as chat templates take them."""
        roles = {"developer": "system"}
        return [{"role": roles.get(m.role, m.role), "content": m.text} for m in self.messages]

    @property
    def question(self) -> str:
        """The last thing the user said, which the domain is told from."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")


def finish_reason(reason: FinishReason) -> Literal["stop", "length"]:
    """Return OpenAI's word for why an output ended."""
    return "length" if reason == "length" else "stop"


def usage(answer: TextAnswer) -> dict[str, int]:
    """Return the counts of tokens of a request."""
    prompt, output = answer.num_prompt_tokens, len(answer.token_ids)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
