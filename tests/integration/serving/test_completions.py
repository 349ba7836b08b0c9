"""The completions server on a tiny target: texts, streams, views, errors."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

from specdec_core.config.drafters import NoDrafter
from specdec_core.config.serving import ServeConfig
from specdec_core.decoding.loop import generate
from specdec_core.decoding.registry import make_drafter
from specdec_core.skip import SkipConfig
from tasks.serving.app import create_app
from tasks.serving.setup import Serving
from tests.integration.served import SKIPS, ask


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
        ({"prompt": "x", "logprobs": 0}, 400, None, "logprobs=0 is not served: leave it out, or"),
        ({"prompt": "x", "colour": 1}, 400, "colour", "Extra inputs are not permitted"),
        ({"prompt": ["x", "y"]}, 400, None, "give one text or one list of token ids"),
        ({"prompt": [99999]}, 400, "prompt", "this model has token ids 0 to 256"),
        ({"prompt": ""}, 400, None, "prompt"),
        ({"prompt": "x", "temperature": 9}, 400, "temperature", "less than or equal to 2"),
        ({"prompt": "x", "max_tokens": 61}, 400, "max_tokens", "this server allows 60"),
        ({"prompt": "x" * 250, "max_tokens": 10}, 400, None, "maximum context length is 256"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages.0.role", "Input should"),
        ({"prompt": "x\ud800"}, 400, None, "not valid Unicode at character 1"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400, None, "not valid Unicode"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
            400,
            "messages.0",
            "only text is served",
        ),
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
        frequency_penalty=0.0,
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
