"""Where profiles come from: files that change, servers that go away."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from specdec_core.errors import ProfileSourceError
from specdec_core.serving.profile import TargetFacts
from specdec_core.serving.rest import RestProfiles
from specdec_core.serving.sources import FileProfiles

FACTS = TargetFacts("pypi:m", "a" * 64, "bfloat16", 6, "prompt-lookup")


def domain_map(skip: list[int | str], **changes: object) -> dict[str, Any]:
    """The mapping as the paper's authors would write it, with what is ours."""
    entry = {"skip": skip, "A": 2.1, "M": 0.3, "A0": 2.0, "M0": 0.3, "eps": [-0.05, -0.05]}
    return {
        "model": "pypi:m",
        "drafter": "prompt-lookup",
        "num_layers": 6,
        "created_by": "f86ce71",
        "default": [],
        "domains": {"qa": {**entry, "sel_ids": ["1"], "status": "validated"}},
        **changes,
    }


def write(path: Path, document: object) -> None:
    """Write with a modification time of its own, as an editor a moment later would."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(json.dumps(document))
    os.utime(path, ns=(before + 10**9, before + 10**9))


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    source = FileProfiles(path)
    assert source.find("qa") is None
    write(path, domain_map([3, "a4"]))
    found = source.find("qa")
    assert found is not None
    assert (found.skip, found.label, found.num_layers) == ("3,a4", "map.json#qa", 6)
    assert source.find("math") is None
    write(path, domain_map([2]))
    assert source.find("qa").skip == "2"
    path.unlink()
    assert source.find("qa") is None


def test_a_broken_file_leaves_the_last_good_map(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    source = FileProfiles(path)
    write(path, "half a fi")
    with pytest.raises(ProfileSourceError, match="no domain map that can be used"):
        source.find("qa")
    write(path, domain_map([2]))
    assert source.find("qa").skip == "2"
    write(path, domain_map([3], default=[1]))  # unknown domains must stay dense
    assert source.find("qa").skip == "2"


def test_a_folder_that_cannot_be_looked_into_leaves_the_last_good_map(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "maps" / "map.json"
    path.parent.mkdir()
    write(path, domain_map([2]))
    source = FileProfiles(path)
    assert source.find("qa").skip == "2"
    path.parent.rename(tmp_path / "moved")
    path.parent.write_text("a file in the place of the folder")
    assert [source.find("qa").skip for _ in range(2)] == ["2", "2"]
    assert caplog.text.count("the last good one stays") == 1
    with pytest.raises(ProfileSourceError, match="no domain map that can be used"):
        FileProfiles(path).find("qa")
    path.parent.unlink()
    (tmp_path / "moved").rename(path.parent)
    write(path, domain_map([3]))
    assert source.find("qa").skip == "3"


class Server:
    """A profile server whose answers a test sets."""

    def __init__(self) -> None:
        self.status, self.body, self.tag = 200, {}, '"1"'
        self.asked: list[tuple[str, str | None, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.headers.get("If-None-Match")
                outer.asked.append((self.path, known, self.headers.get("X-API-Key")))
                status = 304 if known == outer.tag and outer.status == 200 else outer.status
                self.send_response(status)
                self.send_header("ETag", outer.tag)
                self.end_headers()
                if status != 304:
                    self.wfile.write(json.dumps(outer.body).encode())

            def log_message(self, *_args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    one.body = stored("3")
    yield one
    one.stop()


def stored(skip: str) -> dict[str, object]:
    return {
        "id": 12,
        "domain": "qa",
        "target": "pypi:m",
        "target_identity": FACTS.identity,
        "dtype": "bfloat16",
        "drafter": "prompt-lookup",
        "num_layers": 6,
        "skip": skip,
        "status": "active",
        "reason": "more fields than a serving system needs",
    }


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_answer_holds_for_its_time_and_is_then_asked_for_by_its_tag(server: Server) -> None:
    clock = Clock()
    source = RestProfiles(server.url, FACTS, api_key="k", refresh_s=10.0, clock=clock)
    assert source.find("qa").label == "profile 12"
    clock.now = 9.9
    assert source.find("qa").skip == "3"
    assert len(server.asked) == 1
    path, known, key = server.asked[0]
    assert path == (
        f"/api/v1/profiles/resolve?target={FACTS.identity}&drafter=prompt-lookup&dtype=bfloat16"
        "&domain=qa"
    )
    assert (known, key) == (None, "k")
    clock.now = 10.0
    assert source.find("qa").skip == "3"
    assert server.asked[1][1] == '"1"'
    server.body, server.tag = stored("a2"), '"2"'
    clock.now = 20.0
    assert source.find("qa").skip == "a2"


def test_a_domain_without_a_profile_is_an_answer(server: Server) -> None:
    server.status, server.body = 404, {"code": "profile-not-found"}
    source = RestProfiles(server.url, FACTS, clock=Clock())
    assert source.find("qa") is None
    assert source.find("qa") is None
    assert len(server.asked) == 1


def test_a_retired_profile_goes_and_comes_back(server: Server) -> None:
    clock = Clock()
    source = RestProfiles(server.url, FACTS, refresh_s=1.0, clock=clock)
    assert source.find("qa") is not None
    server.status, server.body = 404, {"code": "profile-not-found"}
    clock.now = 1.0
    assert source.find("qa") is None
    server.status, server.body = 200, stored("3")
    clock.now = 2.0
    assert source.find("qa").skip == "3"


@pytest.mark.parametrize("fault", ["500", "nonsense", "gone"])
def test_the_last_good_answer_stays_while_the_server_is_away(server: Server, fault: str) -> None:
    clock = Clock()
    source = RestProfiles(server.url, FACTS, refresh_s=1.0, timeout_s=1.0, clock=clock)
    assert source.find("qa").skip == "3"
    if fault == "gone":
        server.stop()
    else:
        server.status, server.tag = (500, '"2"') if fault == "500" else (200, '"2"')
        server.body = {}
    clock.now = 1.0
    asked = len(server.asked)
    assert source.find("qa").skip == "3"
    with pytest.raises(ProfileSourceError, match="has not answered yet"):
        source.find("math")
    # One failure is enough for a while: other requests must not wait for the server too.
    assert len(server.asked) <= asked + 1


def test_remembered_domains_are_bounded(server: Server) -> None:
    source = RestProfiles(server.url, FACTS, clock=Clock())
    for number in range(300):
        source.find(f"invented {number}")
    assert len(server.asked) == 300
    source.find("invented 299")
    assert len(server.asked) == 300
    source.find("invented 0")  # forgotten, so asked for again
    assert len(server.asked) == 301
