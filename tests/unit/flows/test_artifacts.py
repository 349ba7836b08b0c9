"""What a run leaves on its Prefect page when the server does not answer."""

import logging
from uuid import UUID, uuid4

import pytest

from flows import artifacts
from tasks.report import Progress


class Server:
    """Prefect's two calls, refused while `is_down`."""

    def __init__(self) -> None:
        self.is_down = False
        self.shown: list[tuple[float, str]] = []
        self.artifact_id = uuid4()

    def create(self, share: float, key: str, text: str) -> UUID:
        assert key == "tss-search-qa-progress"
        self.update(self.artifact_id, share, text)
        return self.artifact_id

    def update(self, artifact_id: UUID, share: float, text: str) -> None:
        assert artifact_id == self.artifact_id
        if self.is_down:
            raise ConnectionError("no route")
        self.shown.append((share, text))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr(artifacts, "create_progress_artifact", server.create)
    monkeypatch.setattr(artifacts, "update_progress_artifact", server.update)
    return server


def progress(done: int, stage: str = "level") -> Progress:
    return Progress.model_validate({"stage": stage, "done": done, "total": 4})


def test_a_bar_is_updated_every_two_seconds_and_at_every_stage(server: Server) -> None:
    now = [0.0]
    bar = artifacts.ProgressBar("tss-search-qa", clock=lambda: now[0])
    bar(progress(1))
    bar(progress(2))
    now[0] = 2.0
    bar(progress(3))
    bar(progress(0, "held-out"))
    bar.finish("done")
    assert server.shown == [
        (0.0, "starting"),
        (25.0, "level: 1 of 4"),
        (75.0, "level: 3 of 4"),
        (0.0, "held-out: 0 of 4"),
        (100.0, "done"),
    ]


def test_a_server_that_is_away_costs_a_line_and_is_asked_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.is_down = True
    with caplog.at_level(logging.WARNING, "flows.artifacts"):
        bar = artifacts.ProgressBar("tss-search-qa")
        bar(progress(1))
    said = ["progress is not shown (ConnectionError: no route)"] * 2
    assert caplog.messages == said
    server.is_down = False
    bar.finish("done")
    assert server.shown == [(100.0, "done")]
