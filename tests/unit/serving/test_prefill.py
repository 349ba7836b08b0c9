"""Profiles that were measured with dense prefill: served so, or refused."""

from __future__ import annotations

import pytest

from specdec_core.config.domain_map import DomainMap
from specdec_core.config.evaluation import Prefill
from specdec_core.serving.controller import RuntimeController
from specdec_core.serving.profile import ServedProfile, TargetFacts
from specdec_core.serving.rest import RestProfiles
from specdec_core.serving.sources import mapped_profile
from specdec_core.skip import SkipConfig
from tests.unit.serving.test_controller import Book, profile
from tests.unit.serving.test_sources import FACTS as ASKED
from tests.unit.serving.test_sources import Server, domain_map, server, stored

__all__ = ["server"]

FACTS = TargetFacts("pypi:m", "a" * 64, "bfloat16", 6, "prompt-lookup")
BOTH = TargetFacts(
    "pypi:m", "a" * 64, "bfloat16", 6, "prompt-lookup", prefills=frozenset({"sparse", "dense"})
)


def make(skip: SkipConfig, *, prefill: Prefill = "sparse") -> tuple[str, str]:
    return str(skip), prefill


def test_an_engine_that_says_nothing_of_it_is_never_asked_for_it() -> None:
    one = RuntimeController(FACTS, Book(qa=profile(prefill="dense")), str)
    lease = one.lease("qa")
    assert (lease.view, lease.decision.reason, lease.decision.fault) == ("", "refused", "prefill")
    assert "it was validated with dense prefill, which this engine" in lease.decision.text
    # Where nothing is skipped there is nothing to refuse.
    one = RuntimeController(FACTS, Book(qa=profile(skip="", prefill="dense")), str)
    assert one.lease("qa").decision.reason == "no-gain"


def test_prompts_are_read_as_the_profile_says_and_such_requests_never_share_a_batch() -> None:
    profiles = {"qa": profile(prefill="dense"), "math": profile(), "rag": profile(prefill="dense")}
    one = RuntimeController(BOTH, Book(**profiles), make)
    dense, sparse, other = (one.lease(domain) for domain in ("qa", "math", "rag"))
    assert dense.view == ("2,a4", "dense")
    assert sparse.view == ("2,a4", "sparse")
    assert other.view is dense.view
    assert dense.skip == sparse.skip
    assert dense.group == other.group != sparse.group == "2,a4"
    for lease in (dense, sparse, other):
        lease.abort()
    counted = {name: each.num_requests for name, each in one.snapshot().groups.items()}
    assert counted == {"2,a4": 1, "2,a4 after dense prefill": 2}
    assert one.snapshot().num_active == 0


def test_a_domain_map_may_say_how_prompts_are_read() -> None:
    document = domain_map([3])
    found = mapped_profile(DomainMap.model_validate(document), "qa", "map")
    assert found is not None
    assert found.prefill == "sparse"
    document["domains"]["qa"]["prefill"] = "dense"
    found = mapped_profile(DomainMap.model_validate(document), "qa", "map")
    assert found is not None
    assert found.prefill == "dense"


@pytest.mark.parametrize("prefill", ["sparse", "dense", None])
def test_a_server_that_does_not_say_reads_prompts_sparsely(
    server: Server, prefill: str | None
) -> None:
    server.body = stored("3") | ({"prefill": prefill} if prefill else {})
    found = RestProfiles(server.url, ASKED).find("qa")
    assert isinstance(found, ServedProfile)
    assert found.prefill == (prefill or "sparse")
