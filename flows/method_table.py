"""The drafting methods and their options, read from their records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from flows.views import TableView
from specdec_core.config.base import DrafterOptions
from specdec_core.config.drafters import METHODS
from specdec_core.errors import ConfigError

_NOT_OPTIONS = frozenset({"method", "state_scope"})


def method_table() -> TableView:
    """Return what each method is, whether it is replayable, and what it remembers."""
    return TableView(
        "Methods",
        ("method", "what it drafts", "candidates", "replayable", "remembers"),
        tuple(_row(name, options) for name, options in METHODS.items()),
    )


def option_table(method: str) -> TableView:
    """Return the options of one method.

    Raises:
        ConfigError: for an unknown method.
    """
    if method not in METHODS:
        raise ConfigError(f"drafter {method!r} is unknown: choose one of {', '.join(METHODS)}")
    fields = METHODS[method].model_fields
    return TableView(
        f"Options of {method}",
        ("option", "default", "meaning"),
        tuple(
            (name, _default(field), field.description or "")
            for name, field in fields.items()
            if name != "method"
        ),
    )


def _row(name: str, options: type[DrafterOptions]) -> tuple[str, ...]:
    summary = (options.__doc__ or "").strip().splitlines()[0].rstrip(".")
    # Text that every required option takes: a model's name, or a layer's number.
    sample = options(**{field: "0" for field in _required(options)})
    return (
        f"`{name}`",
        summary,
        _candidates(options, sample),
        _replayable(options, sample),
        " or ".join(_scopes(options)) or "-",
    )


def _required(options: type[DrafterOptions]) -> list[str]:
    return [name for name, field in options.model_fields.items() if field.is_required()]


def _candidates(options: type[DrafterOptions], sample: DrafterOptions) -> str:
    """Say whether candidates are drawn with the defaults, or with which single choice."""
    if sample.draws_candidates:
        return "drawn or chosen"
    drawing = (text for text, made in _choices(options, sample) if made.draws_candidates)
    found = next(drawing, None)
    return f"chosen, drawn with `{found}`" if found else "chosen"


def _replayable(options: type[DrafterOptions], sample: DrafterOptions) -> str:
    """Say whether with the defaults, or with which single choice of an option."""
    if sample.is_replayable:
        return "yes"
    replayable = (text for text, made in _choices(options, sample) if made.is_replayable)
    found = next(replayable, None)
    return f"with `{found}`" if found else "no"


def _choices(
    options: type[DrafterOptions], sample: DrafterOptions
) -> Iterator[tuple[str, DrafterOptions]]:
    """Yield the options with another choice of one of them, and its text."""
    given = sample.model_dump(exclude_defaults=True, exclude={"method"})
    for name, field in options.model_fields.items():
        for choice in get_args(field.annotation) if name not in _NOT_OPTIONS else ():
            if isinstance(choice, str):
                yield f"{name}={choice}", options(**{**given, name: choice})


def _scopes(options: type[DrafterOptions]) -> tuple[str, ...]:
    field = options.model_fields.get("state_scope")
    return get_args(field.annotation) if field is not None else ()


def _default(field: object) -> str:
    default = getattr(field, "default", None)
    is_required = getattr(field, "is_required", lambda: False)()
    return "required" if is_required else "-" if default in (None, "") else str(default)
