"""`specdec drafts`: checkpoints of trained drafts, shown and exported."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from db.store import Store
from db.training import DraftCheckpoint, TrainingPoint
from flows.commands.options import path_of
from flows.commands.output import emit, note, table
from flows.views import number, percent
from specdec_core.config.losses import canonical_losses
from specdec_core.config.settings import Settings
from specdec_core.errors import ConfigError, RunNotFoundError


def list_drafts(args: Namespace) -> int:
    """Show stored checkpoints, newest first."""
    loss = None if args.loss is None else canonical_losses(args.loss)
    with _open_store() as store:
        found = store.checkpoints.list(
            target=args.target,
            kind=args.kind,
            loss=loss,
            state=args.state,
            limit=args.limit,
        )
    emit(args, found, lambda: _list(found))
    return 0


def show_draft(args: Namespace) -> int:
    """Show one checkpoint with its training and evaluation."""
    with _open_store() as store:
        found = _stored(store, args.id)
        training = store.trainings.get(found.training_key)
        evaluation = store.checkpoints.evaluation(found.content_hash)
        lineage = store.checkpoints.lineage(found.content_hash)
    curve = training.curve if training else ()
    document = {
        "checkpoint": found,
        "config": training.config if training else {},
        "curve": curve,
        "evaluation": evaluation,
        "lineage": lineage,
    }
    emit(args, document, lambda: _detail(found, curve, lineage))
    return 0


def export_draft(args: Namespace) -> int:
    """Write a checkpoint in every layout of its kind, and note where."""
    from tasks.draft_exports import export_draft as write_layouts  # loads torch
    from tasks.draft_records import alone_with, stored_evaluation

    settings = Settings()
    folder = path_of(args.to, "--to").absolute()
    with _open_store() as store:
        stored = _stored(store, args.id)
        if folder.resolve().is_relative_to(Path(stored.folder).resolve()):
            raise ConfigError(
                f"--to {folder} is where the draft itself is ({stored.folder}), which would have "
                "other files then: give another folder"
            )
        content_hash = stored.content_hash
        with alone_with(store, content_hash, settings, lambda: False, note) as found:
            folders = write_layouts(found, stored_evaluation(store, found), folder, settings, note)
            written = [str(each) for each in folders]
            known = dict.fromkeys((*found.exports, *written))
            store.checkpoints.note_exports(found.content_hash, list(known))
    emit(args, {"id": args.id, "folders": written}, lambda: Text("\n".join(written)))
    return 0


def _open_store() -> Store:
    return Store.open(Settings().resolved_database_url)


def _stored(store: Store, checkpoint_id: int) -> DraftCheckpoint:
    found = store.checkpoints.get(checkpoint_id)
    if found is None:
        raise RunNotFoundError(
            f"there is no checkpoint {checkpoint_id}: `specdec drafts list` shows what is stored"
        )
    return found


def _list(found: list[DraftCheckpoint]) -> RenderableType:
    rows = [
        (
            one.id,
            one.target,
            one.draft,
            one.loss,
            one.seed,
            one.step,
            number(one.expected_length),
            number(one.realised_length),
            one.state,
        )
        for one in found
    ]
    columns = ("id", "target", "draft", "loss", "seed", "step", "expected", "realised", "state")
    return table(f"{len(rows)} draft checkpoints, acceptance lengths", columns, rows)


def _detail(
    one: DraftCheckpoint, curve: tuple[TrainingPoint, ...], lineage: list[DraftCheckpoint]
) -> RenderableType:
    facts = [
        ("draft", f"{one.draft} of {one.target}"),
        ("loss, seed", f"{one.loss}, {one.seed}"),
        ("files", one.folder),
        ("content hash", one.content_hash),
        ("run", one.run_id),
        ("data, template", f"{one.data_hash[:12]}, {one.template_hash[:12]}"),
        ("state", f"{one.state}: {one.reason or 'not evaluated'}"),
        ("trained on from", ", ".join(str(each.id) for each in lineage)),
        ("exported to", ", ".join(one.exports)),
    ]
    validated = [
        (
            p.step,
            p.phase,
            number(p.validation_loss, 4),
            number(p.greedy.length),
            number(p.sampling.length),
        )
        for p in curve
        if p.greedy is not None and p.sampling is not None
    ]
    depths = [
        (
            depth + 1,
            percent(_at(one.expected_acceptance, depth)),
            percent(_at(one.realised_acceptance, depth)),
        )
        for depth in range(max(len(one.expected_acceptance), len(one.realised_acceptance)))
    ]
    lengths = ("step", "phase", "validation loss", "expected, greedy", "expected, sampling")
    title = f"accepted, given the depth before ({one.criterion})"
    return Group(
        table(f"checkpoint {one.id}", ("what", "value"), facts),
        table("validations, acceptance length", lengths, validated),
        table(title, ("depth", "expected", "realised"), depths),
    )


def _at(values: tuple[float, ...], index: int) -> float | None:
    return values[index] if index < len(values) else None
