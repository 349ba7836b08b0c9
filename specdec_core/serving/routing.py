"""Guessing the domain of a prompt; `router` has the classifier."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Route(NamedTuple):
    """What a router says about a text.

    Attributes:
        domain: The domain, or None where it is not sure.
        confidence: Estimated chance that the likeliest domain is right, in [0, 1].
    """

    domain: str | None
    confidence: float


class Router(Protocol):
    """Tells the domain of a text; called from any thread."""

    def route(self, text: str) -> Route:
        """Return the domain of `text` and how sure that is."""
        ...
