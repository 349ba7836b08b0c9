"""The drafting methods and their options, read from their records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

from pydantic import ValidationError

from flows.views import TableView
from specdec_core.config.base import DrafterOptions
from specdec_core.config.drafters import METHODS
from specdec_core.config.sampling import Sampling, Verification
from specdec_core.errors import ConfigError

_NOT_OPTIONS = frozenset({"method", "state_scope"})


def method_table() -> TableView:
    """Return what each method is, whether it is replayable, and what it remembers."""
    return TableView(
        "Methods",
        ("method", "what it drafts", "candidates", "replayable", "remembers"),
        tuple(_row(name, options) for name, options in METHODS.items()),
    )


def feature_table() -> TableView:
    """Return what each method can be combined with, its options at their defaults.

    Sampled outputs are those of plain sampling token for token under some verification rules, of
    the same law under others, and neither under lossy ones.
    """
    return TableView(
        "Features",
        (
            "method",
            "proposes",
            "candidates",
            "greedy",
            "same tokens under",
            "same law under",
            "lossy under",
            "batch",
            "replayable",
            "warm start",
            "draft model",
            "datastore",
        ),
        tuple(_features(name, options) for name, options in METHODS.items()),
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
    sample = _sample(options)
    return (
        f"`{name}`",
        summary,
        _candidates(options, sample),
        _replayable(options, sample),
        " or ".join(_scopes(options)) or "-",
    )


def _features(name: str, options: type[DrafterOptions]) -> tuple[str, ...]:
    sample = _sample(options)
    shape = "trees" if options.drafts_trees else "chains"
    greedy = Sampling()
    return (
        f"`{name}`",
        shape if name != "none" else "nothing",
        _candidates(options, sample),
        "same tokens" if greedy.is_lossless and greedy.is_coupled else "lossy",
        *_rules(sample),
        "any",
        _replayable(options, sample),
        "`state_scope=run`" if "run" in _scopes(options) else "no",
        _place(options, "model"),
        _place(options, "datastore"),
    )


def _sample(options: type[DrafterOptions]) -> DrafterOptions:
    """Return a record with text that every required option takes: a name, or a layer's number."""
    return options(**{field: "0" for field in _required(options)})


def _rules(sample: DrafterOptions) -> tuple[str, str, str]:
    """Return the verification rules that keep sampled tokens, that keep their law, and others."""
    same, law, lossy = [], [], []
    for rule in get_args(Verification):
        sampling = Sampling(temperature=1.0, verification=rule)
        if sampling.is_coupled_for(draws_candidates=sample.draws_candidates):
            same.append(rule)
        elif sampling.is_lossless:
            law.append(rule)
        else:
            lossy.append(rule)
    return ", ".join(same), ", ".join(law), ", ".join(lossy)


def _place(options: type[DrafterOptions], name: str) -> str:
    """Say whether something outside, a model or a datastore, must or can be named."""
    field = options.model_fields.get(name)
    return "no" if field is None else "required" if field.is_required() else "optional"


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
    """Yield the options with another choice of one of them, and its text; not what is refused."""
    given = sample.model_dump(exclude_defaults=True, exclude={"method"})
    for name, field in options.model_fields.items():
        for choice in get_args(field.annotation) if name not in _NOT_OPTIONS else ():
            if isinstance(choice, str):
                with suppress(ValidationError):
                    yield f"{name}={choice}", options(**{**given, name: choice})


def _scopes(options: type[DrafterOptions]) -> tuple[str, ...]:
    field = options.model_fields.get("state_scope")
    return get_args(field.annotation) if field is not None else ()


def _default(field: object) -> str:
    default = getattr(field, "default", None)
    is_required = getattr(field, "is_required", lambda: False)()
    return "required" if is_required else "-" if default in (None, "") else str(default)
