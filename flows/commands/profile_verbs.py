"""The verbs and flags of `specdec profiles`."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from typing import get_args

from db.schemas import ProfileStatus
from flows.commands.verbs import add_group, add_verb

_MODULE = "flows.commands.profiles"


def add_profiles(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    """Add the verbs."""
    profiles = add_group(verbs, "profiles", "stored skip profiles")
    _add_reading(profiles)
    _add_moves(profiles)
    _add_documents(profiles)


def _add_reading(profiles: argparse._SubParsersAction[ArgumentParser]) -> None:
    listing = add_verb(profiles, "list", f"{_MODULE}:list_profiles", "profiles, newest first")
    for name in ("domain", "target", "drafter"):
        listing.add_argument(f"--{name}", help=f"only this {name}")
    listing.add_argument("--status", choices=get_args(ProfileStatus))
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="at most; default 20")
    show = add_verb(profiles, "show", f"{_MODULE}:show_profile", "one profile, whole")
    _add_id(show)
    history = add_verb(
        profiles,
        "history",
        f"{_MODULE}:profile_history",
        "every version of a profile's key, and who changed its status when and why",
    )
    _add_id(history)
    diff = add_verb(profiles, "diff", f"{_MODULE}:diff", "what two profiles differ in")
    diff.add_argument("first", type=int, metavar="A", help="profile id")
    diff.add_argument("second", type=int, metavar="B", help="profile id")
    resolve = add_verb(
        profiles,
        "resolve",
        f"{_MODULE}:resolve_profile",
        "the active profile that a serving system would get",
    )
    resolve.add_argument("--target", required=True, help="model reference or identity")
    resolve.add_argument("--domain", required=True, help="task domain")
    resolve.add_argument("--drafter", help="method or method:option=value,..")
    resolve.add_argument("--dtype", help="such as bfloat16")


def _add_moves(profiles: argparse._SubParsersAction[ArgumentParser]) -> None:
    activate = add_verb(
        profiles,
        "activate",
        f"{_MODULE}:activate",
        "serve a validated or retired version; the one active before is retired",
    )
    retire = add_verb(
        profiles,
        "retire",
        f"{_MODULE}:retire",
        "serve this version no longer; without an active one the dense target serves",
    )
    for parser in (activate, retire):
        _add_id(parser)
        parser.add_argument("--reason", help="why, kept with the move")
    verify = add_verb(
        profiles,
        "verify",
        f"{_MODULE}:verify",
        "measure a profile again on its held-out items; exit code 1 if it does not hold",
    )
    _add_id(verify)


def _add_documents(profiles: argparse._SubParsersAction[ArgumentParser]) -> None:
    export = add_verb(
        profiles, "export", f"{_MODULE}:export", "one profile with its evidence, as JSON"
    )
    _add_id(export)
    export.add_argument("--to", metavar="FILE", help="file to write; default standard output")
    mapping = add_verb(
        profiles,
        "map",
        f"{_MODULE}:domain_map",
        "what every domain of a target and drafter skips, as one JSON file for a server without "
        "a database",
    )
    mapping.add_argument("--target", required=True, help="model reference or identity")
    mapping.add_argument("--drafter", required=True, help="method or method:option=value,..")
    mapping.add_argument("--dtype", help="needed where profiles of several types are active")
    mapping.add_argument("--to", metavar="FILE", help="file to write; default standard output")
    importing = add_verb(
        profiles,
        "import",
        f"{_MODULE}:import_document",
        "store an exported profile as a candidate; `verify` and `activate` make it serve",
    )
    importing.add_argument(
        "file", metavar="FILE", help="what export wrote, or - for standard input"
    )
    importing.add_argument(
        "--target", metavar="REF", help="the same model here; default the reference in the file"
    )


def _add_id(parser: ArgumentParser) -> None:
    parser.add_argument("id", type=int, help="profile id")
