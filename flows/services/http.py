"""The few HTTP calls that start, watch and stop services; no client library to import."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

# Services are on this machine: a proxy from the environment must not be asked.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_answering(url: str, timeout_s: float = 2.0) -> bool:
    """True if a GET of `url` is answered with success."""
    try:
        with _OPENER.open(url, timeout=timeout_s) as response:
            return bool(200 <= response.status < 300)
    except OSError:
        return False


def post_json(url: str, body: Any, timeout_s: float = 10.0) -> Any:
    """Return the decoded answer to `body` sent as JSON.

    Raises:
        OSError: if the service cannot be reached or refuses; the text has its answer.
    """
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        detail = error.read().decode(errors="replace")[:500]
        raise OSError(f"POST {url} was answered with {error.code}: {detail}") from error
