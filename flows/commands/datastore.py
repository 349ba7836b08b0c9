"""`specdec datastore`: texts that retrieving drafters draft from."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from flows.commands.output import emit, note, table
from specdec_core.config.settings import Settings
from specdec_core.retrieval.datastore import DatastoreManifest, verify_datastore


def build(args: Namespace) -> int:
    """Index texts with a model's tokenizer and show what the datastore is made of."""
    from tasks.datastores import build_datastore

    manifest = build_datastore(_folder(args), args.sources, args.model, Settings(), note)
    _emit(args, manifest)
    return 0


def show(args: Namespace) -> int:
    """Show what a datastore is made of, after reading it whole."""
    _emit(args, verify_datastore(_folder(args)))
    return 0


def _folder(args: Namespace) -> Path:
    return Path(args.folder).expanduser().absolute()


def _emit(args: Namespace, manifest: DatastoreManifest) -> None:
    title = f"datastore: {manifest.num_tokens} tokens, tokenizer of {manifest.model}"
    rows = [(s.name, s.kind, s.num_documents, s.num_tokens) for s in manifest.sources]
    columns = ("source", "kind", "documents", "tokens")
    document = manifest.model_dump(mode="json", exclude={"sources": {"__all__": {"prompt_hashes"}}})
    emit(args, document, lambda: table(title, columns, rows))
