"""Skip profiles from the REST API, asked anew after a while and only sent when they changed."""

from __future__ import annotations

import http.client
import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from specdec_core.errors import ProfileSourceError
from specdec_core.serving.profile import ServedProfile, TargetFacts

logger = logging.getLogger(__name__)

_MAX_DOMAINS = 256  # clients name domains: what is remembered must not grow with what they invent


@dataclass(slots=True)
class _Known:
    """The last answer about one domain; `is_good` says whether there was one at all."""

    profile: ServedProfile | None = None
    tag: str = ""
    is_good: bool = False
    due: float = 0.0


class RestProfiles:
    """Profiles of one target from ``GET {url}/api/v1/profiles/resolve``.

    An answer holds for `refresh_s`; then the next request asks again with the answer's entity tag,
    while others are served from the last answer. Where the server is away the last good answer
    stays, and it is not asked again before `refresh_s` are over.

    Where there is no profile for these very files, the server names the closest ones; one of
    another revision under the same reference is returned, so that it is refused for what it is.

    Args:
        url: Address of the server, without a path.
        facts: The target, drafter and type to ask for.
        api_key: Sent as ``X-API-Key`` if given.
        refresh_s: Seconds for which an answer holds.
        timeout_s: Longest wait for an answer.
        clock: Monotonic clock, seconds.
    """

    def __init__(
        self,
        url: str,
        facts: TargetFacts,
        *,
        api_key: str | None = None,
        refresh_s: float = 10.0,
        timeout_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = f"{url.rstrip('/')}/api/v1/profiles/resolve"
        self._reference = facts.reference
        self._asked = {"target": facts.identity, "drafter": facts.drafter, "dtype": facts.dtype}
        self._headers = {"X-API-Key": api_key} if api_key else {}
        self._refresh_s, self._timeout_s, self._clock = refresh_s, timeout_s, clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._away_until = 0.0
        self._away_why = ""

    def find(self, domain: str) -> ServedProfile | None:
        """Return the active profile of `domain`, at most `refresh_s` old while the server answers.

        Raises:
            ProfileSourceError: if the server is away and never answered for this domain.
        """
        with self._lock:
            known = self._known.setdefault(domain, _Known())
            self._known.move_to_end(domain)
            if len(self._known) > _MAX_DOMAINS:
                self._known.popitem(last=False)
            now = self._clock()
            is_due = now >= self._away_until and (now >= known.due or not known.is_good)
            if is_due:  # others are served from what is known meanwhile
                known.due = now + self._refresh_s
            tag = known.tag
        if is_due:
            self._ask(domain, known, tag)
        if not known.is_good:
            raise ProfileSourceError(f"{self._url} has not answered yet: {self._away_why or '..'}")
        return known.profile

    def _ask(self, domain: str, known: _Known, tag: str) -> None:
        try:
            status, found, new_tag = self._get(domain, tag)
            profile = _profile(found) if status == HTTPStatus.OK else None
            if status == HTTPStatus.NOT_FOUND:
                profile = _other_revision(found, self._reference)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            with self._lock:
                self._away_until = self._clock() + self._refresh_s
                self._away_why = f"{type(error).__name__}: {error}"
            kept = "the last answer stays" if known.is_good else "the domain is dense"
            logger.warning("profiles at %s: %s; %s", self._url, self._away_why, kept)
            return
        with self._lock:
            if status != HTTPStatus.NOT_MODIFIED:
                known.profile, known.tag = profile, new_tag
            known.is_good = True

    def _get(self, domain: str, tag: str) -> tuple[int, Mapping[str, Any], str]:
        """Return status, body and entity tag: 200, 304, or 404 for a domain without a profile."""
        asked = {name: value for name, value in self._asked.items() if value}
        query = urllib.parse.urlencode({**asked, "domain": domain})
        headers = {**self._headers, **({"If-None-Match": tag} if tag else {})}
        request = urllib.request.Request(f"{self._url}?{query}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                return HTTPStatus.OK, json.loads(response.read()), response.headers["ETag"] or ""
        except urllib.error.HTTPError as error:
            with error:
                body = error.read()
            if error.code == HTTPStatus.NOT_MODIFIED:
                return HTTPStatus.NOT_MODIFIED, {}, tag
            is_ours = error.code == HTTPStatus.NOT_FOUND and b"profile-not-found" in body
            if is_ours:
                return HTTPStatus.NOT_FOUND, json.loads(body), ""
            raise


def _other_revision(problem: Mapping[str, Any], reference: str) -> ServedProfile | None:
    """Return the profile that answers the question but for its files, if the server names one."""
    for each in problem.get("closest", ()):
        key = each["key"]
        if list(each["differs"]) == ["target"] and key["target"] == reference:
            return ServedProfile(label=f"profile {each['profile_id']}", status="active", **key)
    return None


def _profile(found: Mapping[str, Any]) -> ServedProfile:
    shared = ServedProfile.model_fields.keys() - {"label"}
    facts = {name: found[name] for name in shared if name != "prefill"}
    # A server from before there was a choice knows sparse prefill alone.
    facts["prefill"] = found.get("prefill", "sparse")
    return ServedProfile(label=f"profile {found['id']}", **facts)
