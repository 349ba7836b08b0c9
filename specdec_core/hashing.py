"""The hash of a document: what content keys are made of."""

from __future__ import annotations

import hashlib
import json


def json_hash(document: object) -> str:
    """Hex SHA-256 over a document of plain values as canonical JSON, whatever its keys' order."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
