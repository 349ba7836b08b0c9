"""`specdec models export`: a sparse target as a checkpoint of its own."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from rich.text import Text

from flows.commands.output import emit
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError


def export_model(args: Namespace) -> int:
    """Write a checkpoint without what a profile or a skip set leaves out, and check it."""
    by_hand = args.target is not None and args.skip is not None
    if (args.profile is None) != by_hand:
        raise ConfigError("say what to export: give --profile ID, or --target REF and --skip SET")
    from tasks.checkpoints import export_profile, export_skip  # loads torch

    folder, settings = Path(args.folder).expanduser().absolute(), Settings()
    if args.profile is None:
        exported = export_skip(args.target, args.skip, folder, settings)
    else:
        exported = export_profile(args.profile, folder, settings)
    check = exported.check
    text = (
        f"{folder}: {exported.num_layers} layers, {exported.source} without {exported.skip}; "
        f"logits equal the sparse view's, in transformers up to {check.largest_difference:.2g} of "
        f"{check.largest_logit:.3g} (float32)"
    )
    emit(args, {"folder": str(folder), **exported.model_dump(mode="json")}, lambda: Text(text))
    return 0
