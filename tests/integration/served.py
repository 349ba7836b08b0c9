"""What the completions server of the tests serves, and how it is asked."""

from __future__ import annotations

import json
from typing import Any

from fastapi.testclient import TestClient

CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SKIPS = {"qa": [1], "math": ["m0", "a2"], "chat": []}
DRAFTER = "prompt-lookup:num_tokens=3"


def ask(client: TestClient, **fields: Any) -> Any:
    is_chat = "messages" in fields
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    body = {"model": client.get("/v1/models").json()["data"][0]["id"], "temperature": 0, **fields}
    headers = {"Content-Type": "application/json"}  # escaped, so that any text can be sent
    return client.post(path, content=json.dumps(body), headers=headers)
