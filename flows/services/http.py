"""The few HTTP calls that start, watch and stop services; no client library to import."""

from __future__ import annotations

import http
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

# Services are on this machine: a proxy from the environment must not be asked.
_BUSY_TRIES = 8
_BUSY_WAIT_S = 1.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RequestRefusedError(OSError):
    """A service answered, but with an error status."""

    def __init__(self, url: str, status: int, detail: str) -> None:
        super().__init__(f"{url} answered with {status}: {detail}")
        self.status = status
        self.detail = detail


def is_answering(url: str, timeout_s: float = 2.0) -> bool:
    """True if a GET of `url` is answered with success."""
    try:
        with _OPENER.open(url, timeout=timeout_s) as response:
            return bool(200 <= response.status < 300)
    except (OSError, http.client.HTTPException):
        return False


def get_json(url: str, timeout_s: float = 10.0) -> Any:
    """Return the decoded answer to a GET.

    Raises:
        RequestRefusedError: if the answer is an error.
        OSError: if the service cannot be reached, or is none that answers in JSON.
    """
    return _send(url, None, timeout_s)


def post_json(url: str, body: Any, timeout_s: float = 10.0) -> Any:
    """Return the decoded answer to `body` sent as JSON.

    Raises:
        RequestRefusedError: if the answer is an error.
        OSError: if the service cannot be reached, or is none that answers in JSON.
    """
    return _send(url, json.dumps(body).encode(), timeout_s)


def _send(url: str, data: bytes | None, timeout_s: float) -> Any:
    """Send a GET, or a POST of JSON where there is `data`; wait where the service is busy.

    Prefect answers 503 while its database is locked, as just after the start; nothing was done
    then, so that sending again is safe.
    """
    for _ in range(_BUSY_TRIES - 1):
        try:
            return _send_once(url, data, timeout_s)
        except RequestRefusedError as error:
            if error.status != http.HTTPStatus.SERVICE_UNAVAILABLE:
                raise
        time.sleep(_BUSY_WAIT_S)
    return _send_once(url, data, timeout_s)


def _send_once(url: str, data: bytes | None, timeout_s: float) -> Any:
    headers = {} if data is None else {"Content-Type": "application/json"}
    try:
        request = urllib.request.Request(url, data, headers)
        with _OPENER.open(request, timeout=timeout_s) as response:
            return json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        detail = error.read().decode(errors="replace")
        raise RequestRefusedError(url, error.code, detail[:2000]) from error
    except (ValueError, http.client.HTTPException) as error:
        raise OSError(f"{url} does not answer in JSON: {error}") from error
