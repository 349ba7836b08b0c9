"""The completions server on a tiny target: texts, streams, views, bounds, errors."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.serving import ServeConfig
from specdec_core.config.settings import Settings
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.serving.controller import RuntimeController
from specdec_core.serving.generator import TextRequest
from specdec_core.serving.sources import NoProfiles
from specdec_core.skip import SkipConfig
from tasks.serving.app import create_app
from tasks.serving.desk import Desk
from tasks.serving.front import Front
from tasks.serving.openai import CompletionRequest
from tasks.serving.replies import Reply
from tasks.serving.setup import Serving, open_serving

CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SKIPS = {"qa": [1], "math": ["a2", "m0"], "chat": []}
DRAFTER = "prompt-lookup:num_tokens=3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serving") / "tiny"
    write_tiny_checkpoint(folder, "qwen3")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    domains = {name: {"skip": skip, "status": "validated"} for name, skip in SKIPS.items()}
    document = {
        "model": f"path:{folder}",
        "drafter": DRAFTER,
        "num_layers": 3,
        "domains": {**domains, "code": {"skip": [9], "status": "active"}},
    }
    (folder.parent / "map.json").write_text(json.dumps(document))
    return folder


@pytest.fixture(scope="module")
def config(folder: Path) -> ServeConfig:
    return ServeConfig(
        target=f"path:{folder}",
        drafter=DRAFTER,
        dtype="float64",
        domain="none",
        profiles=str(folder.parent / "map.json"),
        max_new_tokens=60,
    )


@pytest.fixture(scope="module")
def serving(folder: Path, config: ServeConfig) -> Iterator[Serving]:
    settings = Settings(home=folder.parent / "home", cache=folder.parent / "cache", threads=1)
    with open_serving(config, settings, lambda _line: None, needs_router=False) as serving:
        yield serving


@pytest.fixture
def client(serving: Serving, config: ServeConfig) -> Iterator[TestClient]:
    with TestClient(create_app(serving, config)) as client:
        yield client


def ask(client: TestClient, **fields: Any) -> Any:
    is_chat = "messages" in fields
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    body = {"model": client.get("/v1/models").json()["data"][0]["id"], "temperature": 0, **fields}
    return client.post(path, json=body)


def events_of(answer: Any) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def plain_text(serving: Serving, prompt: str, skip: str, num_tokens: int) -> str:
    """Decode without any of the serving code, without a drafter."""
    target = serving.target
    ids = target.tokenizer([prompt])["input_ids"][0]
    (generation,) = generate(
        target.view(SkipConfig.parse(skip)),
        [ids],
        [make_drafter(NoDrafter())],
        max_new_tokens=num_tokens,
        eos_ids=target.eos_ids,
    )
    return target.tokenizer.decode(generation.token_ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    ("domain", "skip"),
    [(None, ""), ("chat", ""), ("cooking", ""), ("qa", "1"), ("math", "m0,a2"), ("code", "")],
)
def test_text_is_that_of_the_domains_view(
    client: TestClient, serving: Serving, domain: str | None, skip: str
) -> None:
    """An empty skip set reproduces the dense output; unknown and refused domains are dense."""
    body = ask(client, prompt="Grüße aus €!", domain=domain, max_tokens=40).json()
    choice = body["choices"][0]
    assert choice["text"] == plain_text(serving, "Grüße aus €!", skip, 40)
    assert body["specdec"]["skip"] == skip
    num = body["usage"]["completion_tokens"]
    assert choice["finish_reason"] == ("length" if num == 40 else "stop")
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + num


@pytest.mark.parametrize("how", [{}, {"temperature": 1.0, "seed": 7}, {"stop": ["a", "\x05"]}])
@pytest.mark.parametrize("domain", ["qa", "none"])
def test_streamed_text_is_the_whole_text(
    client: TestClient, how: dict[str, Any], domain: str
) -> None:
    fields = {"prompt": "One € two", "domain": domain, "max_tokens": 50, **how}
    whole = ask(client, **fields).json()
    events = events_of(ask(client, **fields, stream=True, stream_options={"include_usage": True}))
    pieces = [event["choices"][0]["text"] for event in events if event["choices"]]
    assert "".join(pieces) == whole["choices"][0]["text"]
    assert events[-1]["usage"] == whole["usage"]
    assert events[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert events[-2]["specdec"]["skip"] == whole["specdec"]["skip"]
    assert len({event["id"] for event in events}) == 1


def test_the_same_seed_gives_the_same_text_and_another_one_another(client: TestClient) -> None:
    texts = [
        ask(client, prompt="Once", temperature=1.2, seed=seed, max_tokens=30).json()
        for seed in (1, 1, 2)
    ]
    first, again, other = (each["choices"][0]["text"] for each in texts)
    assert first == again != other


def test_stop_string_ends_the_text_before_it(client: TestClient) -> None:
    """Tokens are single bytes here, so that every longer stop string crosses their borders."""
    whole = ask(client, prompt="Hello", max_tokens=40).json()["choices"][0]["text"]
    at = next(i for i in range(5, len(whole)) if whole[i : i + 2] not in whole[: i + 1])
    body = ask(client, prompt="Hello", max_tokens=40, stop=whole[at : at + 2]).json()
    assert body["choices"][0]["text"] == whole[:at]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] < 40


def test_chat_goes_through_the_models_template(client: TestClient, serving: Serving) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    body = ask(client, messages=messages, max_completion_tokens=20).json()
    assert body["object"] == "chat.completion"
    message = body["choices"][0]["message"]
    prompt = "<system>Be brief.<user>Hi<assistant>"
    assert message == {"role": "assistant", "content": plain_text(serving, prompt, "", 20)}
    events = events_of(ask(client, messages=messages, max_completion_tokens=20, stream=True))
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]


def test_token_ids_are_a_prompt(client: TestClient, serving: Serving) -> None:
    ids = serving.target.tokenizer(["Hello"])["input_ids"][0]
    as_text = ask(client, prompt="Hello", max_tokens=9).json()
    for prompt in (ids, [ids], ["Hello"]):
        body = ask(client, prompt=prompt, max_tokens=9).json()
        assert body["choices"][0]["text"] == as_text["choices"][0]["text"]


@pytest.mark.parametrize(
    ("fields", "status", "param", "text"),
    [
        ({"model": "gpt-4", "prompt": "x"}, 404, "model", "the model 'gpt-4' does not exist"),
        ({"prompt": "x", "n": 2}, 400, None, "n=2 is not served: leave it out, or give 1"),
        ({"prompt": "x", "colour": 1}, 400, "colour", "Extra inputs are not permitted"),
        ({"prompt": ["x", "y"]}, 400, None, "give one text or one list of token ids"),
        ({"prompt": [99999]}, 400, "prompt", "this model has token ids 0 to 256"),
        ({"prompt": ""}, 400, None, "prompt"),
        ({"prompt": "x", "temperature": 9}, 400, "temperature", "less than or equal to 2"),
        ({"prompt": "x", "max_tokens": 61}, 400, "max_tokens", "this server allows 60"),
        ({"prompt": "x" * 250, "max_tokens": 10}, 400, None, "maximum context length is 256"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages.0.role", "Input should"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "messages.0",
            "only text is served",
        ),
    ],
)
def test_errors_have_openais_shape(
    client: TestClient, fields: dict[str, Any], status: int, param: str | None, text: str
) -> None:
    answer = ask(client, **fields)
    error = answer.json()["error"]
    assert answer.status_code == status
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or None) == param
    assert text in error["message"]


def test_unknown_paths_and_broken_json_have_it_too(client: TestClient) -> None:
    assert client.get("/v1/nothing").json()["error"]["message"].startswith("GET /v1/nothing")
    broken = client.post(
        "/v1/completions", content="{", headers={"Content-Type": "application/json"}
    )
    assert broken.status_code == 400
    assert broken.json()["error"]["type"] == "invalid_request_error"


def test_values_that_mean_nothing_are_accepted(client: TestClient) -> None:
    answer = ask(
        client,
        prompt="x",
        max_tokens=2,
        n=1,
        best_of=1,
        echo=False,
        logprobs=None,
        logit_bias={},
        frequency_penalty=0,
        top_p=0.5,
        user="me",
    )
    assert answer.status_code == 200


def test_key_is_asked_for_as_openai_does(serving: Serving, config: ServeConfig) -> None:
    with TestClient(create_app(serving, config, api_key="s3cret")) as client:
        refused = client.get("/v1/models")
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
        assert client.get("/health").status_code == 200
        headers = {"Authorization": "Bearer s3cret"}
        assert client.get("/v1/models", headers=headers).status_code == 200


def test_kill_switch_and_counters(client: TestClient) -> None:
    before = client.get("/specdec/controller").json()
    switched = client.put("/specdec/controller/dense", json={"on": True, "domain": "qa"})
    assert switched.json()["killed_domains"] == ["qa"]
    body = ask(client, prompt="x", domain="qa", max_tokens=3).json()
    assert (body["specdec"]["skip"], body["specdec"]["dense_reason"]) == ("", "kill-switch")
    client.put("/specdec/controller/dense", json={"on": False, "domain": "qa"})
    assert ask(client, prompt="x", domain="qa", max_tokens=3).json()["specdec"]["skip"] == "1"
    after = client.get("/specdec/controller").json()
    assert after["num_requests"] == before["num_requests"] + 2
    assert after["num_active"] == 0
    assert after["dense"]["kill-switch"] == before["dense"].get("kill-switch", 0) + 1


def test_concurrent_clients_of_two_domains_get_the_texts_of_their_own_views(
    client: TestClient, serving: Serving
) -> None:
    asked = [(domain, f"Prompt {number}") for number in range(6) for domain in ("qa", "math")]
    with ThreadPoolExecutor(4) as pool:
        bodies = list(
            pool.map(lambda one: ask(client, domain=one[0], prompt=one[1], max_tokens=12), asked)
        )
    for (domain, prompt), body in zip(asked, bodies, strict=True):
        skip = ",".join(map(str, sorted(SKIPS[domain], key=lambda unit: str(unit)[-1])))
        assert body.json()["choices"][0]["text"] == plain_text(serving, prompt, skip, 12)


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
