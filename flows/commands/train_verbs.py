"""The verbs and flags of `specdec train` and `specdec drafts`."""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from typing import get_args

from db.training import CheckpointState
from flows.commands.options import add_flag
from flows.commands.verbs import add_group, add_verb
from specdec_core.config.losses import LossOptions
from specdec_core.config.training import DraftKind
from specdec_core.config.training_run import (
    COMPARED,
    DRAFT_HELP,
    FLAT,
    PRESETS,
    LossComparisonConfig,
    field_of,
)

_GROUPS = {
    "train": "draft and training",
    "losses": "options of losses",
    "data": "training data",
    "evaluation": "evaluation in the decode loop",
    "run": "the whole run",
}


def add_training(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    """Add the verbs."""
    train = add_verb(
        verbs,
        "train",
        "flows.commands.train:train",
        "train a draft of a target on the target's own responses, evaluate it in the decode loop "
        "and export it; with --losses, compare losses",
    )
    train.add_argument("preset", nargs="?", help=f"one of {', '.join(PRESETS)}")
    train.add_argument(
        "--inline",
        action="store_true",
        help="make data and train in this process, without Ray Train, with one worker",
    )
    compared = train.add_argument_group("comparison of losses")
    for name in COMPARED:
        add_flag(compared, name, LossComparisonConfig.model_fields[name])
    groups = {name: train.add_argument_group(title) for name, title in _GROUPS.items()}
    for name, path in FLAT.items():
        part = path[-2] if len(path) > 1 else "run"
        group = groups["losses" if name in LossOptions.model_fields else part]
        if name == "draft":
            group.add_argument("--draft", metavar="TEXT", help=f"{DRAFT_HELP}; default pruned")
            continue
        record, field = field_of(name)
        add_flag(group, name, record.model_fields[field])
    _add_drafts(verbs)


def _add_drafts(verbs: argparse._SubParsersAction[ArgumentParser]) -> None:
    drafts = add_group(verbs, "drafts", "checkpoints of trained drafts")
    module = "flows.commands.drafts"
    listing = add_verb(drafts, "list", f"{module}:list_drafts", "checkpoints, newest first")
    listing.add_argument("--target", help="only drafts of this model reference or identity")
    listing.add_argument("--kind", choices=get_args(DraftKind))
    listing.add_argument("--loss", help="only this loss, such as kl+0.1eal or wtv/wtv+0.1grpo")
    listing.add_argument("--state", choices=get_args(CheckpointState))
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="at most; default 20")
    show = add_verb(
        drafts,
        "show",
        f"{module}:show_draft",
        "one checkpoint with its curve, expected and realised acceptance, and lineage",
    )
    export = add_verb(
        drafts,
        "export",
        f"{module}:export_draft",
        "write a checkpoint in the layouts of serving systems that its kind has",
    )
    for verb in (show, export):
        verb.add_argument("id", type=int, help="checkpoint id")
    export.add_argument("--to", required=True, metavar="FOLDER", help="folder for the layouts")
