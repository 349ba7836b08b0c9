"""The page in headless Chromium: charts are drawn offline, and the picture is not blank."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from PIL import Image

from dashboards.app import create_app
from db.store import Store
from specdec_core.config.settings import Settings
from tests.unit.dashboards import examples

CHROMIUM = shutil.which("chromium")
WIDTH, HEIGHT = 1400, 2200
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=8000",
    f"--window-size={WIDTH},{HEIGHT}",
)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]


@contextmanager
def served(store: Store, home: Path) -> Iterator[str]:
    """Run the application on a free port; yield its address."""
    settings = Settings(home=home, api_key=None)
    app = create_app(settings, store=store, environment={})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        deadline = time.monotonic() + 30.0
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=30.0)


@pytest.fixture
def address(store: Store, tmp_path: Path) -> Iterator[str]:
    examples.seed(store)
    with served(store, tmp_path / "home") as url:
        yield url


def browse(profile: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120.0).stdout


def test_charts_are_drawn_without_a_network(address: str, tmp_path: Path) -> None:
    resolver = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
    html = browse(tmp_path / "chromium", resolver, "--dump-dom", f"{address}/")
    assert 'data-charts="drawn"' in html
    # Four charts, each with its drawing area and one plot per objective or arm.
    assert len(re.findall(r'<div class="chart[^"]*js-plotly-plot', html)) == 4
    assert html.count('class="main-svg"') >= 4
    assert html.count('class="subplot xy"') == 4
    # Three units by two objectives, and two depths by two arms.
    assert len(re.findall(r'<g class="point">', html)) >= 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_picture_is_not_blank(address: str, tmp_path: Path, scheme: str) -> None:
    picture = tmp_path / "page.png"
    # Blink's values of the setting: 0 is dark, 1 is light.
    setting = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    browse(tmp_path / "chromium", setting, f"--screenshot={picture}", f"{address}/")
    with Image.open(picture) as image:
        assert image.size == (WIDTH, HEIGHT)
        pixels = image.convert("RGB")
        corner = pixels.getpixel((2, HEIGHT - 2))
        assert isinstance(corner, tuple)
        assert (sum(corner) < 3 * 64) == (scheme == "dark")
        colours = pixels.resize((350, 550)).getcolors(350 * 550)
        assert colours is not None
        assert len(colours) > 200
        # The bars of the ablation chart: blue of acceptance, orange of the metric.
        found = {colour for _, colour in pixels.getcolors(WIDTH * HEIGHT) or ()}
        assert {(0x2F, 0x7F, 0xD1), (0xD9, 0x77, 0x2B)} <= found
