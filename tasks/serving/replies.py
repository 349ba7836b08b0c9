"""Answers of the two endpoints, whole and as chunks of a stream."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from specdec_core.models.view import TargetView
from specdec_core.serving.controller import Lease
from specdec_core.serving.generator import TextAnswer
from tasks.serving.openai import finish_reason, usage

DONE = "data: [DONE]\n\n"


def report(lease: Lease[TargetView], answer: TextAnswer, drafter: str) -> dict[str, Any]:
    """Return what is ours to tell of an answer: what was skipped and why, and how it went."""
    return {
        "domain": lease.domain,
        "skip": str(lease.skip),
        "prefill": lease.decision.prefill,
        "why": lease.decision.text,
        "dense_reason": lease.decision.reason,
        "drafter": drafter,
        "acceptance_length": answer.acceptance_length,
        "num_steps": answer.num_steps,
        "tokens_per_s": answer.tokens_per_s,
        "prefill_s": answer.phases.prefill,
        "decode_s": answer.phases.decode,
    }


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of an endpoint; every part of it has the same id and time."""

    kind: Literal["text_completion", "chat.completion"]
    model: str
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, answer: TextAnswer, ours: dict[str, Any]) -> dict[str, Any]:
        """Return the reply in one piece."""
        choice: dict[str, Any] = {
            "index": 0,
            "logprobs": None,
            "finish_reason": finish_reason(answer.finish_reason),
        }
        if self._is_chat:
            choice["message"] = {"role": "assistant", "content": answer.text}
        else:
            choice["text"] = answer.text
        return {
            **self._head(self.kind),
            "choices": [choice],
            "usage": usage(answer),
            "specdec": ours,
        }

    def opening(self) -> Iterator[str]:
        """Yield what a stream begins with."""
        if self._is_chat:
            yield self._event([self._choice({"role": "assistant", "content": ""})])

    def piece(self, text: str) -> str:
        """Return the chunk of a piece of text."""
        return self._event([self._choice({"content": text} if self._is_chat else text)])

    def closing(
        self, answer: TextAnswer, ours: dict[str, Any], *, with_usage: bool
    ) -> Iterator[str]:
        """Yield what a stream ends with."""
        last = self._choice({} if self._is_chat else "", finish_reason(answer.finish_reason))
        yield self._event([last], specdec=ours)
        if with_usage:
            yield self._event([], usage=usage(answer))
        yield DONE

    @property
    def _is_chat(self) -> bool:
        return self.kind == "chat.completion"

    def _head(self, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self._is_chat else "cmpl"
        return {
            "id": f"{prefix}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
        }

    def _choice(self, said: dict[str, str] | str, reason: str | None = None) -> dict[str, Any]:
        name = "delta" if self._is_chat else "text"
        return {"index": 0, name: said, "logprobs": None, "finish_reason": reason}

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> str:
        kind = "chat.completion.chunk" if self._is_chat else self.kind
        return sse({**self._head(kind), "choices": choices, **more})


def sse(document: dict[str, Any]) -> str:
    """Return a document as one server-sent event."""
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"
