"""What each flow does by default; the one place that knows it.

Prefect deployments, flows and the command line all pass only what the user gave and take the
rest from here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from specdec_core.config.build import build_config
from specdec_core.config.search import CompareConfig, SearchConfig, SensitivityConfig
from specdec_core.errors import ConfigError

_BASE_TARGET = "pypi:gemma3-270m"
_CHAT_TARGET = "pypi:smollm2-135m"

# Only what differs from the defaults of SearchConfig. Translation was tuned on measurements, and
# summarization's units and tolerance follow from one; what the other domains set is a guess that
# fits a short run on two cores: nobody has tuned it.
_SEARCH_DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "translation": {
            "num_selection": 32,
            "batch_size": 32,
            "target": _BASE_TARGET,
            "units": "attention",
            "beam": 2,
            "depth": 2,
            "max_new_tokens": 48,
        },
        "summarization": {
            "target": _CHAT_TARGET,
            "units": "block",
            "beam": 2,
            "depth": 2,
            "tolerance": -0.10,
            "max_new_tokens": 72,
        },
        "qa": {"target": _CHAT_TARGET, "beam": 2, "depth": 2, "max_new_tokens": 48},
        "rag": {"target": _CHAT_TARGET, "beam": 2, "depth": 2, "max_new_tokens": 48},
        "math": {"target": _CHAT_TARGET, "beam": 2, "depth": 2, "max_new_tokens": 128},
        # Acceptance alone decides, and guards against degenerate outputs: agreement is shown.
        "chat": {
            "target": _CHAT_TARGET,
            "beam": 2,
            "depth": 2,
            "max_new_tokens": 96,
            "strategy": "accept-only",
            "tolerance_metric": -1.0,
        },
        "mmlu": {"target": _CHAT_TARGET, "beam": 2, "depth": 2, "max_new_tokens": 32},
        "code": {"target": _CHAT_TARGET, "beam": 2, "depth": 2, "max_new_tokens": 128},
    }
)

DOMAINS: tuple[str, ...] = tuple(_SEARCH_DEFAULTS)

# Short prompts and a metric, so that a negative control is cheap and can tell harm.
_CONTROL, _CONTROL_OF_CONTROL = "qa", "translation"


def check_domain(domain: str, suite: str | None = None) -> str:
    """Return `domain` if it is one of ours; a suite of the user's own may name one of its own.

    Raises:
        ConfigError: for an unknown domain; names the closest one and lists all.
    """
    if domain in _SEARCH_DEFAULTS or suite is not None:
        return domain
    close = difflib.get_close_matches(domain, DOMAINS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ConfigError(f"domain {domain!r} is unknown: {hint}choose one of {', '.join(DOMAINS)}")


def search_defaults(domain: str, suite: str | None = None) -> dict[str, Any]:
    """Return the fields of SearchConfig that `domain` sets itself, `domain` included.

    A domain that only the user's own `suite` knows sets nothing else.

    Raises:
        ConfigError: for an unknown domain.
    """
    if check_domain(domain, suite) not in _SEARCH_DEFAULTS:
        return {"domain": domain}
    control = _CONTROL if domain != _CONTROL else _CONTROL_OF_CONTROL
    return {"domain": domain, "control": control, **_SEARCH_DEFAULTS[domain]}


def search_config(domain: str, given: Mapping[str, Any] | None = None) -> SearchConfig:
    """Return the search of `domain` with the fields in `given` that are not None.

    A tolerance that is given goes for both acceptance and metric, whatever the domain has for one.

    Raises:
        ConfigError: for an unknown domain or field, or a value outside its range.
    """
    given = given or {}
    defaults = search_defaults(domain, given.get("suite"))
    if given.get("tolerance") is not None:
        defaults.pop("tolerance_metric", None)
    return build_config(SearchConfig, defaults, given)


def compare_config(domain: str, given: Mapping[str, Any] | None = None) -> CompareConfig:
    """Return the comparison of strategies in `domain`; `given` holds fields of both records.

    Raises:
        ConfigError: as `search_config`, or for an unknown or repeated strategy.
    """
    rest = dict(given or {})
    chosen = {"strategies": rest.pop("strategies", None)}
    return build_config(CompareConfig, {"search": search_config(domain, rest)}, chosen)


def sensitivity_config(domain: str, given: Mapping[str, Any] | None = None) -> SensitivityConfig:
    """Return the sweep of tolerances in `domain`; `given` holds fields of both records.

    Raises:
        ConfigError: as `search_config`, or for tolerances out of range.
    """
    rest = dict(given or {})
    chosen = {"tolerances": rest.pop("tolerances", None)}
    return build_config(SensitivityConfig, {"search": search_config(domain, rest)}, chosen)
