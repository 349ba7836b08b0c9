"""The runtime controller: which sparse view of the target a request runs on, for all its life."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

from specdec_core.config.evaluation import Prefill
from specdec_core.errors import ProfileSourceError
from specdec_core.records import StepTrace
from specdec_core.serving.audit import Audit, AuditSnapshot, DenseReason
from specdec_core.serving.profile import FaultKind, ServedProfile, TargetFacts, find_fault
from specdec_core.serving.routing import Router
from specdec_core.serving.sources import ProfileSource
from specdec_core.skip import SkipConfig

logger = logging.getLogger(__name__)

ViewT = TypeVar("ViewT")
AUTO = "auto"
"""Domain name that asks the router for the domain."""

_DENSE_TEXTS: dict[DenseReason, str] = {
    "no-domain": "the request names no domain",
    "no-profile": "there is no profile for this domain",
    "no-gain": "the search found nothing to gain in this domain",
    "source-away": "profiles cannot be read now",
    "kill-switch": "an operator switched to dense",
    "abstained": "the domain could not be told with confidence",
}


class Decision(NamedTuple):
    """What was decided for one request, and why."""

    skip: SkipConfig
    text: str
    reason: DenseReason | None = None
    fault: FaultKind | None = None
    profile: ServedProfile | None = None
    prefill: Prefill = "sparse"

    @property
    def group(self) -> str:
        """Requests share a batch and a cache layout only if this is equal."""
        return str(self.skip) if self.prefill == "sparse" else f"{self.skip} after dense prefill"


class Lease(Generic[ViewT]):
    """One request's right to one view; nothing changes it while the request lives.

    A context manager; leave it having called `finish`, else the request counts as aborted.

    Attributes:
        view: The sparse view to prefill and decode with, from the first token to the last.
        skip: What it leaves out.
        domain: The domain that was looked up, None where none was named or told.
        decision: Why this skip set.
    """

    def __init__(self, view: ViewT, domain: str | None, decision: Decision, audit: Audit) -> None:
        self.view, self.domain, self.decision = view, domain, decision
        self.skip = decision.skip
        self._audit = audit
        self._lock = threading.Lock()
        self._has_ended = False

    @property
    def group(self) -> str:
        """Requests share a batch only if this is equal: the skip set, and how prompts are read."""
        return self.decision.group

    def finish(self, trace: StepTrace, num_tokens: int) -> None:
        """Count what the request came to; the first call counts.

        Args:
            trace: Counts of its verify steps.
            num_tokens: Output tokens.
        """
        self._end(trace, num_tokens)

    def abort(self) -> None:
        """Count the request as ended without an output, unless it ended already."""
        self._end(None, 0)

    def __enter__(self) -> Lease[ViewT]:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.abort()

    def _end(self, trace: StepTrace | None, num_tokens: int) -> None:
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        self._audit.end(self.group, trace, num_tokens)


class RuntimeController(Generic[ViewT]):
    """Gives each request a view by its domain; whatever is unknown or doubtful runs dense.

    Safe to use from any thread. Views are made once per group and share every weight.

    Args:
        facts: The loaded target and drafter.
        source: Where profiles come from.
        make_view: Returns the view that leaves out a skip set, as `Target.view` does; called with
            ``prefill="dense"`` too where `facts` say that it can.
        router: Guesses the domain of requests that ask for `AUTO`; None leaves them dense.

    Source: TSS (look-up by domain at run time); refusals, kill switch and counters are ours.
    """

    def __init__(
        self,
        facts: TargetFacts,
        source: ProfileSource,
        make_view: Callable[..., ViewT],
        router: Router | None = None,
    ) -> None:
        self.facts = facts
        self._source, self._make_view, self._router = source, make_view, router
        self._audit = Audit()
        self._lock = threading.Lock()
        self._views: dict[str, ViewT] = {}
        self._warned: set[str] = set()
        self._is_killed = False
        self._killed: set[str] = set()

    def lease(self, domain: str | None, text: str = "") -> Lease[ViewT]:
        """Return the view of a new request.

        Args:
            domain: Task domain; None or empty is dense, `AUTO` asks the router.
            text: What the router reads: the prompt, or a conversation's last question.
        """
        is_auto = domain == AUTO
        if is_auto:
            domain = self._router.route(text).domain if self._router else None
        decision = self._decide(domain or None, "abstained" if is_auto else "no-domain")
        view = self._view(decision)
        self._audit.begin(decision.group, decision.reason, decision.fault)
        return Lease(view, domain or None, decision, self._audit)

    def kill(self, domain: str | None = None) -> None:
        """Run new requests of `domain`, or of all domains, on the dense target."""
        with self._lock:
            if domain is None:
                self._is_killed = True
            else:
                self._killed.add(domain)
        logger.warning("kill switch on for %s", domain or "all domains")

    def revive(self, domain: str | None = None) -> None:
        """Undo `kill` of `domain`, or of all domains together with those killed by name."""
        with self._lock:
            if domain is None:
                self._is_killed = False
                self._killed.clear()
            else:
                self._killed.discard(domain)
        logger.warning("kill switch off for %s", domain or "all domains")

    def snapshot(self) -> AuditSnapshot:
        """Return the counters as they are now."""
        with self._lock:
            is_killed, domains = self._is_killed, tuple(sorted(self._killed))
        return self._audit.snapshot(is_killed=is_killed, killed_domains=domains)

    def _decide(self, domain: str | None, unnamed: DenseReason) -> Decision:
        with self._lock:
            is_killed = self._is_killed or domain in self._killed
        if is_killed:
            return _dense("kill-switch")
        if domain is None:
            return _dense(unnamed)
        try:
            profile = self._source.find(domain)
        except ProfileSourceError as error:
            return _dense("source-away", str(error))
        if profile is None:
            return _dense("no-profile")
        fault = find_fault(profile, self.facts)
        if fault is not None:
            text = f"{profile.label} is refused: {fault.text}"
            self._warn_once(f"{domain}: {text}; the domain runs dense")
            return Decision(SkipConfig(), text, "refused", fault.kind, profile)
        skip = SkipConfig.parse(profile.skip)
        if not skip.units:
            return _dense("no-gain", profile=profile)
        text = f"{profile.label} of {domain}"
        return Decision(skip, text, profile=profile, prefill=profile.prefill)

    def _view(self, decision: Decision) -> ViewT:
        options = {} if decision.prefill == "sparse" else {"prefill": decision.prefill}
        with self._lock:
            if decision.group not in self._views:
                self._views[decision.group] = self._make_view(decision.skip, **options)
            return self._views[decision.group]

    def _warn_once(self, text: str) -> None:
        with self._lock:
            is_new = text not in self._warned
            self._warned.add(text)
        if is_new:
            logger.warning("%s", text)


def _dense(reason: DenseReason, text: str = "", profile: ServedProfile | None = None) -> Decision:
    return Decision(SkipConfig(), text or _DENSE_TEXTS[reason], reason, None, profile)
