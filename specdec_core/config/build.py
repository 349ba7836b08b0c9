"""Makes a config record from what a user gave, with errors in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from specdec_core.errors import ConfigError

Config = TypeVar("Config", bound=BaseModel)


def build_config(
    kind: type[Config], defaults: Mapping[str, Any], given: Mapping[str, Any] | None = None
) -> Config:
    """Return a `kind` of `defaults` and the values of `given` that are not None.

    Args:
        kind: The record to make.
        defaults: Values where the record's own defaults do not apply.
        given: Values from the user; None means "not given", which is what an absent flow
            parameter or command line flag is.

    Raises:
        ConfigError: for an unknown field or a value outside its range; names each one.
    """
    chosen = {name: value for name, value in (given or {}).items() if value is not None}
    try:
        return kind(**{**defaults, **chosen})
    except ValidationError as error:
        raise ConfigError(_problems(error)) from error


def _problems(error: ValidationError) -> str:
    """One part per wrong field: what was given and what was expected."""
    parts = []
    for problem in error.errors():
        if problem["type"] == "default_factory_not_called":
            continue  # nobody gave it: what it follows from is wrong and has a part of its own
        name = ".".join(str(part) for part in problem["loc"])
        reason = problem["msg"].removeprefix("Value error, ")
        # What several parameters have wrong together says so itself.
        given = f"parameter {name}={problem['input']!r} is not valid: " if name else ""
        parts.append(f"{given}{reason}")
    return "; ".join(parts)
