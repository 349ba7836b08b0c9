"""Which methods of a benchmark have their distribution tested."""

from __future__ import annotations

import pytest

from specdec_core.config.benchmark import BenchmarkConfig
from specdec_core.errors import SearchCancelledError
from tasks import laws

METHODS = ("prompt-lookup", "layer-skip:skip=1,gamma=2")


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        ("", set()),
        ("temperature=1.0", {METHODS[1]}),
        ("temperature=1.0,verification=match", set()),
        ("temperature=1.0,verification=residual", set(METHODS)),
        ("temperature=1.0,verification=typical", set()),
    ],
)
def test_only_what_is_not_compared_token_for_token_is_tested(
    monkeypatch: pytest.MonkeyPatch, sampling: str, expected: set[str]
) -> None:
    monkeypatch.setattr(laws, "NUM_DRAWS", 250)
    config = BenchmarkConfig(methods=METHODS, sampling=sampling)
    assert set(laws.law_tests(config, lambda _line: None)) == expected


def test_a_test_stops_when_it_is_told_to() -> None:
    config = BenchmarkConfig(methods=METHODS, sampling="temperature=1.0")
    with pytest.raises(SearchCancelledError):
        laws.law_tests(config, lambda _line: None, lambda: True)
