"""HTTP calls to services against a real server in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from flows.services import http as service_http
from flows.services.http import RequestRefusedError, get_json, post_json


class Server(HTTPServer):
    """Answers with the statuses it is told, then with 200, and counts its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.num_requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.num_requests += 1
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()
        self.wfile.write(b'{"answer": 1}')

    do_POST = do_GET

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(service_http, "_BUSY_WAIT_S", 0.0)
    with Server() as opened:
        thread = threading.Thread(target=opened.serve_forever, daemon=True)
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def test_a_busy_service_is_asked_again(server: Server) -> None:
    server.statuses = [503, 503]
    assert post_json(server.url, {}) == {"answer": 1}
    assert server.num_requests == 3


def test_a_service_that_stays_busy_is_an_error(server: Server) -> None:
    server.statuses = [503] * 100
    with pytest.raises(RequestRefusedError, match="answered with 503"):
        get_json(server.url)


def test_a_refusal_is_not_repeated(server: Server) -> None:
    server.statuses = [422]
    with pytest.raises(RequestRefusedError) as caught:
        get_json(server.url)
    assert caught.value.status == 422
    assert server.num_requests == 1
