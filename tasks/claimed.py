"""Requests that this driver has claimed, and those that another process is doing."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from db.claims import Claims
from specdec_core.config.evaluation import EvaluationRequest
from specdec_core.errors import StoreError

POLL_S = 0.2
"""How often to look for what others are doing."""


@dataclass(slots=True)
class ClaimedWork:
    """Who does what, of the requests of one driver."""

    claims: Claims
    elsewhere: dict[str, EvaluationRequest] = field(default_factory=dict)
    """By key, what another process has claimed: its result is waited for."""
    _own: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        """Whether this driver has claimed it."""
        return key in self._own

    def take(self, request: EvaluationRequest) -> bool:
        """Claim a request; where another process was first, note that it is done elsewhere."""
        if not self.claims.take(request.key):
            self.elsewhere[request.key] = request
            return False
        self._own.add(request.key)
        self.elsewhere.pop(request.key, None)
        return True

    def release(self, key: str) -> None:
        """Give a request up, however it became known."""
        self.elsewhere.pop(key, None)
        if key in self._own:
            self._own.remove(key)
            self.claims.release(key)

    def close(self) -> None:
        """Give everything up."""
        with contextlib.suppress(StoreError):  # a server that is gone has freed them itself
            for key in list(self._own):
                self.release(key)
