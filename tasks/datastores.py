"""Build a datastore for retrieving drafters from suites and plain text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from specdec_core.config.settings import Settings
from specdec_core.data.records import DOMAINS
from specdec_core.data.suites import domain_of, load_suite
from specdec_core.errors import DataError
from specdec_core.retrieval.datastore import (
    DatastoreManifest,
    DatastoreSource,
    check_is_free,
    prompt_hash,
    write_datastore,
)
from specdec_core.retrieval.indexed_text import index_documents
from tasks.runtime import LogLine


@dataclass(frozen=True, slots=True)
class _Texts:
    """One source as text."""

    name: str
    kind: Literal["suite", "text"]
    content_hash: str
    documents: tuple[str, ...]
    prompt_hashes: tuple[str, ...] = ()


def build_datastore(
    folder: Path, sources: Sequence[str], model: str, settings: Settings, notify: LogLine
) -> DatastoreManifest:
    """Build the datastore `folder` for the tokenizer of `model` and return its manifest.

    Every user turn and every reference of a suite is a document of its own, as is every text
    file; matches never reach from one document into another.

    Args:
        folder: Where it is written; must not exist.
        sources: JSONL files of suites, other files as UTF-8 text, or domains, whose suite is
            the one an evaluation would use.
        model: Model reference.
        settings: Data and cache folders.
        notify: Takes lines for the user.

    Raises:
        ConfigError: if a source or the model cannot be used, or `folder` exists.
    """
    check_is_free(folder)
    texts = [_read(source, settings) for source in sources]
    from specdec_core.models.files import tokenizer_identity
    from specdec_core.models.loading import load_tokenizer
    from specdec_core.models.reference import resolve_model

    resolved = resolve_model(model, settings.cache_dir, notify)
    tokenizer = load_tokenizer(resolved.folder)
    ids = [
        tokenizer(list(each.documents), add_special_tokens=False, verbose=False)["input_ids"]
        for each in texts
    ]
    manifest = write_datastore(
        folder,
        index_documents(document for documents in ids for document in documents),
        tuple(
            DatastoreSource(
                name=each.name,
                kind=each.kind,
                content_hash=each.content_hash,
                num_documents=len(documents),
                num_tokens=sum(map(len, documents)),
                prompt_hashes=each.prompt_hashes,
            )
            for each, documents in zip(texts, ids, strict=True)
        ),
        model=resolved.reference,
        tokenizer_identity=tokenizer_identity(resolved.folder, settings.cache_dir),
        vocab_size=len(tokenizer),
    )
    suites = ", ".join(each.name for each in texts if each.kind == "suite")
    if suites:
        notify(
            f"prompts and references of these suites are in the datastore, so do not measure a "
            f"drafter that uses it on them: {suites}"
        )
    return manifest


def _read(source: str, settings: Settings) -> _Texts:
    path = Path(source).expanduser()
    if path.suffix == ".jsonl" and path.is_file():
        return _read_suite(source, domain_of(path), str(path), settings)
    if path.is_file():
        return _read_text(source, path)
    if source in DOMAINS:
        return _read_suite(source, source, None, settings)
    raise DataError(
        f"source {source!r} is neither a file nor a domain: give a suite (JSONL), a text file or "
        f"one of {', '.join(DOMAINS)}"
    )


def _read_suite(name: str, domain: str, place: str | None, settings: Settings) -> _Texts:
    suite = load_suite(domain, place, settings.data)
    documents = [
        text for item in suite.items for text in (*item.turns, *item.references) if text.strip()
    ]
    hashes = tuple(prompt_hash(item.prompt) for item in suite.items)
    return _Texts(name, "suite", suite.content_hash, tuple(documents), hashes)


def _read_text(name: str, path: Path) -> _Texts:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not UTF-8 at byte {error.start + 1}: save the file as UTF-8"
        ) from error
    if not text.strip():
        raise DataError(f"{path} is empty: give a file with text")
    return _Texts(name, "text", hashlib.sha256(content).hexdigest(), (text,))
