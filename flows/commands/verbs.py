"""How verbs are added to the command: groups, and handlers named by where they are found."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser


def add_group(
    verbs: argparse._SubParsersAction[ArgumentParser], name: str, text: str
) -> argparse._SubParsersAction[ArgumentParser]:
    """Add a verb that has verbs of its own, and return these."""
    parser = verbs.add_parser(name, help=text, description=text)
    return parser.add_subparsers(title="verbs", metavar="VERB", required=True)


def add_verb(
    verbs: argparse._SubParsersAction[ArgumentParser], name: str, handler: str, text: str
) -> ArgumentParser:
    """Add a verb that `handler`, written ``module:function``, carries out; return its parser."""
    parser = verbs.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(handler=handler)
    return parser
