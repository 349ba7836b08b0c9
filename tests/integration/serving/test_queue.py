"""Requests that wait, leave or fail: each ends alone, and the decode goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specdec_core.config.serving import ServeConfig
from specdec_core.serving.controller import RuntimeController
from specdec_core.serving.generator import TextRequest
from specdec_core.serving.sources import NoProfiles
from tasks.serving.app import create_app
from tasks.serving.desk import Desk
from tasks.serving.front import Front
from tasks.serving.openai import CompletionRequest
from tasks.serving.replies import Reply
from tasks.serving.setup import Serving
from tests.integration.served import ask


class GatedView:
    """A view whose prefill waits for a gate, so that a request stays under way."""

    def __init__(self, view: Any, gate: threading.Event) -> None:
        self._view, self._gate = view, gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def prefill(self, *args: Any, **options: Any) -> Any:
        assert self._gate.wait(30)
        return self._view.prefill(*args, **options)


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def gated(serving: Serving, gate: threading.Event) -> Serving:
    facts = serving.controller.facts
    controller = RuntimeController(
        facts, NoProfiles(), lambda skip: GatedView(serving.target.view(skip), gate)
    )
    return Serving(serving.info, serving.target, controller, serving.generator)


def eventually(is_true: Any) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_full_queue_is_429(gated: Serving, gate: threading.Event, config: ServeConfig) -> None:
    short = config.model_copy(update={"queue": 1})
    with TestClient(create_app(gated, short)) as client, ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(ask, client, prompt="x", max_tokens=2)
            eventually(lambda: gated.controller.snapshot().num_active == 1)
            time.sleep(0.1)  # the first is decoded by now, so that one may wait
            second = pool.submit(ask, client, prompt="x", max_tokens=2)
            eventually(lambda: gated.controller.snapshot().num_active == 2)
            third = ask(client, prompt="x", max_tokens=2)
        finally:
            gate.set()
        assert third.status_code == 429
        assert third.headers["retry-after"] == "1"
        assert third.json()["error"] == {
            "message": "the queue of 1 requests is full: try again later",
            "type": "rate_limit_error",
            "param": None,
            "code": "queue_full",
        }
        assert [one.result().status_code for one in (first, second)] == [200, 200]


def test_a_client_that_leaves_stops_its_decode(
    gated: Serving, gate: threading.Event, config: ServeConfig
) -> None:
    """Both the request under way and the one behind it, whose client leaves as well."""
    desk = Desk(gated.generator, 4)
    front = Front(gated, config, desk)
    asked = CompletionRequest(model=front.model, prompt="x", temperature=0, max_tokens=60)

    async def leave() -> None:
        for _ in range(2):
            visit = await front.submit(*front.prepare(asked))
            stream = front.stream(visit, Reply("text_completion", front.model), with_usage=False)
            waiting = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.wait([waiting])
        gate.set()

    asyncio.run(leave())
    desk.close()
    snapshot = gated.controller.snapshot()
    assert (snapshot.num_active, snapshot.num_aborted) == (0, 2)
    assert snapshot.groups["dense"].num_tokens == 0


def test_a_request_that_fails_ends_alone(serving: Serving, config: ServeConfig) -> None:
    desk = Desk(serving.generator, 4)
    front = Front(serving, config, desk)

    async def fail_then_work() -> list[object]:
        lease = serving.controller.lease(None)
        bad = await front.submit(lease, TextRequest((1,), 10_000))
        asked = CompletionRequest(model=front.model, prompt="x", temperature=0, max_tokens=3)
        good = await front.submit(*front.prepare(asked))
        reply = Reply("text_completion", front.model)
        events = [event async for event in front.stream(bad, reply, with_usage=False)]
        more = [event async for event in front.stream(good, reply, with_usage=False)]
        return [events, more]

    bad_events, good_events = asyncio.run(fail_then_work())
    desk.close()
    assert "exceed the target's 256 positions" in bad_events[0]
    assert '"finish_reason": "length"' in good_events[-2]
