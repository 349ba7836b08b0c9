"""From a request of a client to its job, and from the job's events to what the client reads."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from specdec_core.config.serving import ServeConfig
from specdec_core.models.view import TargetView
from specdec_core.serving.controller import Lease
from specdec_core.serving.generator import TextAnswer, TextRequest
from tasks.serving.desk import Desk, Event, Job
from tasks.serving.faults import ApiError, error_body, error_of
from tasks.serving.openai import ChatRequest, CompletionRequest
from tasks.serving.prompts import chat_ids, plain_ids
from tasks.serving.replies import DONE, Reply, report, sse
from tasks.serving.setup import Serving

Asked = CompletionRequest | ChatRequest
_POLL_S = 0.25  # seconds between looks whether the client still waits


@dataclass(frozen=True, slots=True)
class Visit:
    """A job in the queue, and where its events arrive."""

    job: Job
    events: asyncio.Queue[Event]


class Front:
    """Takes requests in, and gives answers out whole or as a stream."""

    def __init__(self, serving: Serving, config: ServeConfig, desk: Desk) -> None:
        self.serving, self.config, self.desk = serving, config, desk

    @property
    def model(self) -> str:
        """Name under which the target is served."""
        return self.serving.info.reference

    def prepare(self, asked: Asked) -> tuple[Lease[TargetView], TextRequest]:
        """Return the view of a request, fixed from now on, and what to decode.

        Raises:
            ApiError: if the model is not the one that is served, or lengths do not fit.
            ConfigError: if the prompt cannot be read.
        """
        if asked.model != self.model:
            raise ApiError(
                404,
                f"the model {asked.model!r} does not exist: this server has {self.model!r}",
                "model",
                "model_not_found",
            )
        ids, text = self._read(asked)
        request = self._request(ids, asked)
        domain = asked.domain or self.config.asked_domain
        if domain == "none":
            domain = None
        return self.serving.controller.lease(domain, text), request

    async def submit(self, lease: Lease[TargetView], request: TextRequest) -> Visit:
        """Let a request wait for its turn.

        Raises:
            QueueFullError: if as many wait as may.
        """
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def tell(event: Event) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, event)

        job = Job(lease, request, tell)
        self.desk.submit(job)
        return Visit(job, events)

    async def whole(
        self, visit: Visit, reply: Reply, is_gone: Callable[[], Awaitable[bool]]
    ) -> dict[str, object]:
        """Return the reply to a request once it is there; a client that leaves stops it.

        Raises:
            ApiError: if the client has gone, or decoding failed.
        """
        try:
            while True:
                try:
                    event = await asyncio.wait_for(visit.events.get(), _POLL_S)
                except TimeoutError:
                    if await is_gone():
                        raise ApiError(499, "the client closed the request") from None
                    continue
                if isinstance(event, Exception):
                    raise error_of(event)
                if isinstance(event, TextAnswer):
                    return reply.whole(event, self._report(visit, event))
        finally:
            self.desk.withdraw(visit.job)

    async def stream(self, visit: Visit, reply: Reply, *, with_usage: bool) -> AsyncIterator[str]:
        """Yield the events of a reply; closing the iterator stops decoding."""
        try:
            for opening in reply.opening():
                yield opening
            while True:
                event = await visit.events.get()
                if isinstance(event, str):
                    yield reply.piece(event)
                    continue
                if isinstance(event, Exception):
                    yield sse(error_body(error_of(event)))
                    yield DONE
                else:
                    ours = self._report(visit, event)
                    for closing in reply.closing(event, ours, with_usage=with_usage):
                        yield closing
                return
        finally:
            self.desk.withdraw(visit.job)

    def _report(self, visit: Visit, answer: TextAnswer) -> dict[str, object]:
        return report(visit.job.lease, answer, self.config.drafter)

    def _read(self, asked: Asked) -> tuple[tuple[int, ...], str]:
        """Return the prompt's ids, and the text that tells its domain."""
        target = self.serving.target
        if isinstance(asked, ChatRequest):
            return chat_ids(target, asked.turns), asked.question
        prompt = asked.single_prompt
        if isinstance(prompt, str):
            return plain_ids(target, prompt), prompt
        size = target.arch.vocab_size
        if any(not 0 <= token < size for token in prompt):
            raise ApiError(400, f"prompt: this model has token ids 0 to {size - 1}", "prompt")
        return tuple(prompt), str(target.tokenizer.decode(prompt))

    def _request(self, ids: tuple[int, ...], asked: Asked) -> TextRequest:
        longest, most = self.serving.target.arch.max_positions, self.config.max_new_tokens
        room = longest - len(ids)
        wanted = asked.wanted_tokens or max(1, min(most, room))
        if not ids:
            raise ApiError(400, "prompt: it is empty, give at least one token", "prompt")
        if wanted > most:
            raise ApiError(
                400, f"max_tokens: {wanted} are asked for, this server allows {most}", "max_tokens"
            )
        if wanted > room:
            raise ApiError(
                400,
                f"this model's maximum context length is {longest} tokens, but the prompt has "
                f"{len(ids)} and {wanted} more are asked for: shorten one of them",
                code="context_length_exceeded",
            )
        seed = secrets.randbelow(2**31) if asked.seed is None else asked.seed % 2**63
        return TextRequest(ids, wanted, asked.sampling, seed, asked.stop_strings)
