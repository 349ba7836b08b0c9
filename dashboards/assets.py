"""Scripts and styles of the pages: our own small files, and plotly's from its package."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from plotly.offline import get_plotlyjs, get_plotlyjs_version

PLOTLY = "plotly.js"
_TYPES = {
    "charts.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    PLOTLY: "text/javascript; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    body: bytes
    gzipped: bytes
    tag: str
    media_type: str


@cache
def asset(name: str) -> Asset | None:
    """Return the file called `name`, or None; read and compressed once per process."""
    if name not in _TYPES:
        return None
    if name == PLOTLY:
        body = get_plotlyjs().encode()
    else:
        body = files("dashboards").joinpath("static", name).read_bytes()
    tag = hashlib.sha256(body).hexdigest()[:32]
    return Asset(body, gzip.compress(body, mtime=0), tag, _TYPES[name])


@cache
def asset_urls() -> Mapping[str, str]:
    """Return the address of every file; another content gets another address."""
    versions = {PLOTLY: get_plotlyjs_version()}
    for name in _TYPES.keys() - versions.keys():
        found = asset(name)
        assert found is not None  # the names come from the same table
        versions[name] = found.tag[:8]
    return {name: f"/dashboards/static/{name}?v={version}" for name, version in versions.items()}
