"""Defaults of the domains: known in one place, overridden field by field."""

import pytest

from specdec_core.config.domains import DOMAINS, search_config, search_defaults
from specdec_core.errors import ConfigError
from tasks.calibration import calibration_config


def test_every_domain_of_the_issue_has_a_valid_search() -> None:
    expected = {"translation", "summarization", "qa", "rag", "math", "chat", "mmlu", "code"}
    assert set(DOMAINS) == expected
    for domain in DOMAINS:
        assert search_config(domain).domain == domain


def test_absent_overrides_leave_the_default_of_the_domain() -> None:
    config = search_config("translation", {"beam": None, "tolerance": -0.2})
    defaults = search_defaults("translation")
    assert config.beam == defaults["beam"]
    assert config.units == "attention"
    assert config.tolerance == -0.2


def test_returned_defaults_can_be_changed_without_changing_the_next() -> None:
    search_defaults("qa")["beam"] = 999
    assert search_config("qa").beam != 999


def test_unknown_domain_is_answered_with_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"'translatoin' is unknown: did you mean 'translation'"):
        search_config("translatoin")


def test_a_suite_of_the_users_own_may_name_a_domain_of_its_own() -> None:
    config = search_config("riddles", {"suite": "riddles.jsonl"})
    assert (config.domain, config.target) == ("riddles", "pypi:gemma3-270m")
    assert calibration_config("riddles", {"suite": "riddles.jsonl"}).domain == "riddles"
    assert calibration_config("qa", {}).target == search_defaults("qa")["target"]
    with pytest.raises(ConfigError, match="'riddles' is unknown"):
        calibration_config("riddles", {})


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("tolerance", 3.0, "parameter tolerance=3.0 is not valid: Input should be less than"),
        ("beam", 0, "parameter beam=0 is not valid: Input should be greater than"),
        ("width", 4, "parameter width=4 is not valid: Extra inputs are not permitted"),
        ("drafter", "eagle9", "drafter 'eagle9' is unknown: choose one of none"),
    ],
)
def test_wrong_value_is_refused_by_name(field: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        search_config("qa", {field: value})
