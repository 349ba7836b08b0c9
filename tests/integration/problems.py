"""Check of problem documents, shared by the tests of the REST API."""

from __future__ import annotations

from typing import Any


def problem(response: Any, status: int, code: str) -> dict[str, Any]:
    """Check that a response is a problem document and return it."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"urn:specdec:problem:{code}"
    assert body["title"]
    assert body["detail"]
    return body
