"""The runtime controller: what runs dense, what is refused, what never changes in a request."""

from __future__ import annotations

import threading

import pytest

from specdec_core.errors import ProfileSourceError
from specdec_core.records import StepTrace
from specdec_core.serving.controller import RuntimeController
from specdec_core.serving.profile import ServedProfile, TargetFacts
from specdec_core.serving.routing import Route
from specdec_core.serving.sources import NoProfiles
from specdec_core.skip import SkipConfig

FACTS = TargetFacts("pypi:m", "a" * 64, "bfloat16", 6, "prompt-lookup", frozenset({0}))


def profile(**changes: object) -> ServedProfile:
    fields: dict[str, object] = {
        "label": "profile 1",
        "domain": "qa",
        "target": FACTS.reference,
        "target_identity": FACTS.identity,
        "dtype": FACTS.dtype,
        "drafter": FACTS.drafter,
        "num_layers": 6,
        "skip": "2,a4",
        "status": "active",
    }
    return ServedProfile.model_validate({**fields, **changes})


class Book:
    """Profiles that a test can change while requests live."""

    def __init__(self, **profiles: ServedProfile) -> None:
        self.profiles = profiles
        self.is_away = False

    def find(self, domain: str) -> ServedProfile | None:
        if self.is_away:
            raise ProfileSourceError("away")
        return self.profiles.get(domain)


def controller(source: object = None, router: object = None) -> RuntimeController[str]:
    return RuntimeController(FACTS, source or Book(qa=profile()), str, router)


def test_a_domain_with_a_profile_gets_its_view() -> None:
    lease = controller().lease("qa")
    assert (lease.view, lease.group, lease.decision.reason) == ("2,a4", "2,a4", None)
    assert lease.decision.text == "profile 1 of qa"


@pytest.mark.parametrize(
    ("domain", "reason"), [(None, "no-domain"), ("", "no-domain"), ("cooking", "no-profile")]
)
def test_unknown_and_missing_domains_run_dense(domain: str | None, reason: str) -> None:
    one = controller()
    lease = one.lease(domain)
    assert (lease.view, lease.group, lease.decision.reason) == ("", "", reason)
    assert one.snapshot().dense == {reason: 1}


def test_without_any_source_everything_is_dense() -> None:
    assert controller(NoProfiles()).lease("qa").decision.reason == "no-profile"


def test_a_search_without_gain_is_dense_and_says_so() -> None:
    assert controller(Book(qa=profile(skip=""))).lease("qa").decision.reason == "no-gain"


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"num_layers": 7}, "layers", "it is for 7 layers, the target has 6"),
        ({"num_layers": None, "skip": "9"}, "layers", "names layer 9"),
        ({"num_layers": None, "skip": "0,1,2,3,4,5"}, "layers", "leaves out every layer"),
        (
            {"target_identity": "b" * 64},
            "revision",
            "another revision: files bbbbbbbbbbbb.., but aaaa",
        ),
        ({"target": "pypi:n", "target_identity": ""}, "target", "it is for pypi:n, not pypi:m"),
        ({"dtype": "float32"}, "dtype", "it was validated in float32, not in bfloat16"),
        ({"drafter": "none"}, "drafter", "it was validated with none, not with prompt-lookup"),
        ({"drafter": "magic"}, "malformed", "'magic' is unknown"),
        ({"skip": "x3"}, "malformed", "'x3'"),
        ({"skip": "a4,2"}, "malformed", "its skip set 'a4,2' is not sorted: write 2,a4"),
        ({"skip": "2,2"}, "malformed", "skip units repeat in '2,2'"),
        ({"skip": "a0,2"}, "protected", "it skips parts of the protected layers [0]"),
        ({"status": "retired"}, "status", "it is 'retired'"),
        ({"status": "candidate"}, "status", "only active or validated ones serve"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused_and_counted(
    changes: dict[str, object], kind: str, text: str
) -> None:
    one = controller(Book(qa=profile(**changes)))
    lease = one.lease("qa")
    assert (lease.view, lease.decision.reason, lease.decision.fault) == ("", "refused", kind)
    assert text in lease.decision.text
    snapshot = one.snapshot()
    assert (snapshot.dense, snapshot.refused) == ({"refused": 1}, {kind: 1})


def test_the_same_files_under_another_name_are_the_same_target() -> None:
    assert controller(Book(qa=profile(target="path:/m"))).lease("qa").view == "2,a4"


def test_drafters_are_compared_by_meaning_not_spelling() -> None:
    spelled = profile(drafter="prompt-lookup:num_tokens=10")  # the default, written out
    assert controller(Book(qa=spelled)).lease("qa").view == "2,a4"


def test_a_request_keeps_its_view_whatever_happens_meanwhile() -> None:
    book = Book(qa=profile())
    one = controller(book)
    lease = one.lease("qa")
    book.profiles["qa"] = profile(skip="3")
    one.kill()
    assert (lease.view, lease.group) == ("2,a4", "2,a4")
    assert one.lease("qa").view == ""


def test_kill_switch_of_one_domain_and_of_all() -> None:
    one = controller(Book(qa=profile(), math=profile(skip="3")))
    one.kill("qa")
    assert [one.lease(name).view for name in ("qa", "math")] == ["", "3"]
    assert one.lease("qa").decision.reason == "kill-switch"
    one.revive("qa")
    one.kill()
    assert (one.snapshot().is_killed, one.lease("math").view) == (True, "")
    one.revive()
    assert [one.lease(name).view for name in ("qa", "math")] == ["2,a4", "3"]


def test_profiles_that_cannot_be_read_mean_dense() -> None:
    book = Book(qa=profile())
    book.is_away = True
    assert controller(book).lease("qa").decision.reason == "source-away"


class SureOf:
    def __init__(self, domain: str | None) -> None:
        self.domain = domain

    def route(self, text: str) -> Route:
        assert text == "Who was it?"
        return Route(self.domain, 0.9)


def test_auto_asks_the_router_and_its_doubt_means_dense() -> None:
    lease = controller(router=SureOf("qa")).lease("auto", "Who was it?")
    assert (lease.domain, lease.view) == ("qa", "2,a4")
    lease = controller(router=SureOf(None)).lease("auto", "Who was it?")
    assert (lease.domain, lease.view, lease.decision.reason) == (None, "", "abstained")
    assert controller().lease("auto", "Who was it?").decision.reason == "abstained"


def test_audit_pools_what_requests_came_to() -> None:
    one = controller()
    trace = StepTrace(drafted=(3, 3), depth=(3, 3), accepted=(2, 0), committed=(3, 1))
    with one.lease("qa") as lease:
        lease.finish(trace, 5)
        lease.finish(trace, 5)  # counted once
    with one.lease("qa"):
        pass  # left without an output
    active = one.lease("cooking")
    snapshot = one.snapshot()
    assert (snapshot.num_requests, snapshot.num_active, snapshot.num_aborted) == (3, 1, 1)
    counts = snapshot.groups["2,a4"]
    assert (counts.num_requests, counts.num_tokens, counts.num_steps) == (2, 5, 2)
    assert (counts.num_drafted, counts.num_accepted, counts.acceptance_length) == (6, 2, 2.0)
    assert snapshot.groups["dense"].acceptance_length is None
    active.abort()
    assert one.snapshot().num_active == 0


def test_views_are_made_once_per_skip_set_from_many_threads() -> None:
    made: list[SkipConfig] = []

    def make(skip: SkipConfig) -> object:
        made.append(skip)
        return object()

    one = RuntimeController(FACTS, Book(qa=profile(), math=profile()), make)
    views: list[object] = []

    def ask() -> None:
        for _ in range(50):
            with one.lease("qa") as first, one.lease("math") as second:
                views.extend((first.view, second.view))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len({id(view) for view in views})) == (1, 1)
    assert one.snapshot().num_requests == 800
    assert one.snapshot().num_active == 0
