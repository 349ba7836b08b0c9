"""Command line flags made from the fields of a config record: one source for both."""

from __future__ import annotations

import json
from argparse import ArgumentParser, BooleanOptionalAction, Namespace, _ArgumentGroup
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from specdec_core.errors import ConfigError


def path_of(text: str, flag: str) -> Path:
    """Return the path that was given to a flag.

    Raises:
        ConfigError: if it is empty, which would silently mean the folder one is in.
    """
    if not text.strip():
        raise ConfigError(f"{flag} is empty: name a path, such as . for the folder you are in")
    return Path(text).expanduser()


_METAVARS = {int: "N", float: "X", str: "TEXT"}


def add_config_flags(
    parser: ArgumentParser | _ArgumentGroup,
    config: type[BaseModel],
    leave_out: Collection[str] = (),
    *,
    has_domain_defaults: bool = False,
) -> None:
    """Add one flag per field of `config`; what the user leaves out becomes None.

    Values stay text: the record itself checks and converts them, so that the flag, the flow
    parameter and the REST field are refused in the same words.

    Args:
        parser: Where the flags go.
        config: The record.
        leave_out: Fields that are given in another way.
        has_domain_defaults: Whether a domain may replace the record's own defaults.
    """
    for name, field in config.model_fields.items():
        if name not in leave_out:
            add_flag(parser, name, field, has_domain_defaults=has_domain_defaults)


def add_flag(
    parser: ArgumentParser | _ArgumentGroup,
    name: str,
    field: FieldInfo,
    *,
    has_domain_defaults: bool = False,
) -> None:
    """Add the flag of one field under a name of its own; absent it is None."""
    flag = f"--{name.replace('_', '-')}"
    kind = _plain_type(field.annotation)
    text = _help(field, has_domain_defaults)
    if kind is bool:
        parser.add_argument(flag, action=BooleanOptionalAction, default=None, help=text)
    elif get_origin(kind) is tuple:
        metavar = _METAVARS.get(get_args(kind)[0], "TEXT")
        parser.add_argument(flag, nargs="+", metavar=metavar, help=text)
    elif get_origin(kind) is Literal:
        choices = "|".join(str(choice) for choice in get_args(kind))
        parser.add_argument(flag, metavar=choices, help=text)
    else:
        parser.add_argument(flag, metavar=_METAVARS.get(kind, "TEXT"), help=text)


def given_flags(
    args: Namespace, config: type[BaseModel], leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """Return the fields of `config` that the user set on the command line."""
    names = (name for name in config.model_fields if name not in leave_out)
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def parse_assignments(pairs: Iterable[str]) -> dict[str, Any]:
    """Return ``name=value`` pairs, values read as JSON where they are, else as text.

    Raises:
        ConfigError: for a pair without a name or ``=``, or a name given twice.
    """
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            raise ConfigError(f"parameter {pair!r} is not understood: write name=value")
        if name in parsed:
            raise ConfigError(f"parameter {name!r} is given twice: give it once")
        try:
            parsed[name] = json.loads(text)
        except json.JSONDecodeError:
            parsed[name] = text
    return parsed


def _plain_type(annotation: Any) -> Any:
    """The type without ``| None``."""
    if get_origin(annotation) in {Literal, tuple}:
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    return _plain_type(kinds[0]) if kinds else annotation


def _help(field: FieldInfo, has_domain_defaults: bool) -> str:
    low = next((m.ge for m in field.metadata if isinstance(m, Ge)), None)
    high = next((m.le for m in field.metadata if isinstance(m, Le)), None)
    parts = [field.description or ""]
    if low is not None or high is not None:
        parts.append(f"range {'' if low is None else low}..{'' if high is None else high}")
    if field.default not in {None, "", (), PydanticUndefined}:
        default = field.default
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        or_domain = ", or the domain's own" if has_domain_defaults else ""
        parts.append(f"default {shown}{or_domain}")
    return "; ".join(filter(None, parts)).replace("%", "%%")
