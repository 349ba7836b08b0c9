"""Small datastores for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from specdec_core.retrieval.datastore import DatastoreSource, write_datastore
from specdec_core.retrieval.indexed_text import index_documents


def make_datastore(folder: Path, documents: Sequence[Sequence[int]]) -> str:
    """Write a datastore of tokenized documents to `folder` and return its path."""
    source = DatastoreSource(
        name="documents",
        kind="text",
        content_hash="0",
        num_documents=len(documents),
        num_tokens=sum(map(len, documents)),
    )
    write_datastore(
        folder,
        index_documents(documents),
        (source,),
        model="none",
        tokenizer_identity="0",
        vocab_size=1 + max(map(max, documents)),
    )
    return str(folder)
