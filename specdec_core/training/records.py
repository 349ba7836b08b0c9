"""Samples of training data, and shards of them as Parquet."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from specdec_core.config.draft_data import HiddenDType
from specdec_core.errors import DataError
from specdec_core.training.manifest import DataCounts
from specdec_core.training.spans import Span

MAX_MISMATCH = 0.01
"""Share of response tokens above which a sample is flagged, if there are several such tokens."""

HIDDEN_DTYPES: Mapping[HiddenDType, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}

_KEY, _COUNTS = "specdec.key", "specdec.counts"

SampleEnd = Literal["stop_token", "stop_string", "length", "given"]
"""Why a response ends; ``given`` is one that the user's data brought."""


@dataclass(frozen=True, slots=True)
class StoredSample:
    """One sequence with its responses.

    Attributes:
        sample_id: Unique in the data.
        prompt_id: Of the prompt; samples of one conversation share it.
        source: Name of the file or data set of the prompt.
        token_ids: Prompt and responses.
        spans: Where the responses are, in order, disjoint, none empty.
        end: Why the last response ends.
        num_mismatched: Response tokens that the training forward does not rank best; None where
            tokens were drawn or given.
        states: ``[N, 1 + T, h]``: the head's input after each token, and the taps; None if not
            stored.
        top_ids: ``[R, k]`` int32: ids ranked best before each of the R response tokens.
        top_logits: ``[R, k]`` float32. Softmax over them alone is a biased view of the target.
    """

    sample_id: str
    prompt_id: str
    source: str
    token_ids: tuple[int, ...]
    spans: tuple[Span, ...]
    end: SampleEnd
    num_mismatched: int | None = None
    states: Tensor | None = None
    top_ids: NDArray[np.int32] | None = None
    top_logits: NDArray[np.float32] | None = None

    @property
    def num_response_tokens(self) -> int:
        """Tokens of all responses."""
        return sum(stop - start for start, stop in self.spans)

    @property
    def is_flagged(self) -> bool:
        """Whether several response tokens, more than 1 %, are not what the target ranks best.

        A single near-tie in a short response says nothing about how it was made.
        """
        return (self.num_mismatched or 0) > max(1, MAX_MISMATCH * self.num_response_tokens)


class ShardWriter:
    """Writes one shard, sample by sample; it appears whole, or not at all.

    Every sample is a row group, so that one is read without its neighbours.

    Args:
        path: Of the shard.
        key: Of the data, kept in the file.
        hidden_dtype: Precision that states are stored in.
    """

    def __init__(self, path: Path, *, key: str, hidden_dtype: HiddenDType) -> None:
        self._path, self._dtype = path, HIDDEN_DTYPES[hidden_dtype]
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}")
        self._schema = _SCHEMA.with_metadata({_KEY: key})
        self._counts = DataCounts()
        self._writer = pq.ParquetWriter(
            self._temporary,
            self._schema,
            compression="NONE",
            use_dictionary=False,
            write_statistics=False,
            write_page_checksum=True,
        )

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def add(self, sample: StoredSample) -> None:
        """Write one sample."""
        row = _row(sample, self._dtype)
        self._writer.write_table(pa.Table.from_pylist([row], schema=self._schema))
        self._counts += _counts_of(sample)

    def finish(self, extra: DataCounts) -> DataCounts:
        """Put the shard into its place and return its counts, `extra` included."""
        counts = self._counts + extra
        self._writer.add_key_value_metadata({_COUNTS: counts.model_dump_json()})
        self._writer.close()
        self._temporary.replace(self._path)
        return counts.model_copy(update={"num_bytes": self._path.stat().st_size})


def read_counts(path: Path, key: str) -> DataCounts:
    """Return the counts of a finished shard.

    Raises:
        DataError: as `open_shard`.
    """
    with open_shard(path, key) as file:
        stored = (file.metadata.metadata or {}).get(_COUNTS.encode(), b"{}")
    counts = DataCounts.model_validate_json(stored)
    return counts.model_copy(update={"num_bytes": path.stat().st_size})


def open_shard(path: Path, key: str) -> pq.ParquetFile:
    """Return the shard at `path`, of which nothing but the footer is read.

    Raises:
        DataError: if it is missing, damaged, or of other data than `key`.
    """
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    stored = (file.schema_arrow.metadata or {}).get(_KEY.encode(), b"").decode()
    if stored != key:
        raise DataError(
            f"{path} belongs to data {stored[:12] or 'without a key'}, not to {key[:12]}: remove "
            "it and make the data again"
        )
    return file


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path} cannot be read ({error}): remove it and make the data again; finished shards "
        "are kept"
    )


def read_tokens(path: Path, key: str) -> list[StoredSample]:
    """Return the samples of a shard without states and logits.

    Raises:
        DataError: as `open_shard`, or if a page does not have the checksum it was written with.
    """
    columns = ["sample_id", "prompt_id", "source", "token_ids", "spans", "end", "num_mismatched"]
    with open_shard(path, key) as file:
        try:
            rows = cast(list[dict[str, Any]], file.read(columns=columns).to_pylist())
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
    return [
        StoredSample(
            sample_id=row["sample_id"],
            prompt_id=row["prompt_id"],
            source=row["source"],
            token_ids=tuple(row["token_ids"]),
            spans=_spans(row["spans"]),
            end=row["end"],
            num_mismatched=row["num_mismatched"],
        )
        for row in rows
    ]


def _spans(bounds: Sequence[int]) -> tuple[Span, ...]:
    return tuple(zip(bounds[::2], bounds[1::2], strict=True))


def read_states(
    file: pq.ParquetFile, path: Path, row: int, *, dtype: HiddenDType, width: int
) -> Tensor:
    """Return the states of one sample of the open shard at `path`, ``[N, width]``, as written.

    Raises:
        DataError: if a page does not have the checksum it was written with.
    """
    try:
        column = file.read_row_group(row, columns=["states"])["states"]
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    raw = torch.from_numpy(np.frombuffer(column[0].as_buffer(), dtype=np.uint8).copy())
    return raw.view(HIDDEN_DTYPES[dtype]).view(-1, width)


_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string()),
        pa.field("prompt_id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("prompt_tokens", pa.int32()),
        pa.field("token_ids", pa.list_(pa.int32())),
        pa.field("spans", pa.list_(pa.int32())),
        pa.field("end", pa.string()),
        pa.field("num_mismatched", pa.int32()),
        pa.field("states", pa.large_binary()),
        pa.field("top_ids", pa.list_(pa.int32())),
        pa.field("top_logits", pa.list_(pa.float32())),
    ]
)


def _row(sample: StoredSample, dtype: torch.dtype) -> dict[str, object]:
    states = None
    if sample.states is not None:
        stored = sample.states.detach().to(device="cpu", dtype=dtype).contiguous()
        if torch.isinf(stored).sum() > torch.isinf(sample.states).sum():
            raise DataError(
                f"hidden states of sample {sample.sample_id!r} are larger than {dtype} can hold: "
                "say hidden_dtype=bfloat16 or float32"
            )
        states = stored.view(torch.uint8).numpy().tobytes()
    return {
        "sample_id": sample.sample_id,
        "prompt_id": sample.prompt_id,
        "source": sample.source,
        "prompt_tokens": sample.spans[0][0],
        "token_ids": sample.token_ids,
        "spans": [bound for span in sample.spans for bound in span],
        "end": sample.end,
        "num_mismatched": sample.num_mismatched,
        "states": states,
        "top_ids": None if sample.top_ids is None else sample.top_ids.ravel(),
        "top_logits": None if sample.top_logits is None else sample.top_logits.ravel(),
    }


def _counts_of(sample: StoredSample) -> DataCounts:
    num_response = sample.num_response_tokens
    num_generated = 0 if sample.end == "given" else num_response
    return DataCounts(
        num_samples=1,
        num_tokens=len(sample.token_ids),
        num_response_tokens=num_response,
        num_generated=num_generated,
        num_compared=0 if sample.num_mismatched is None else num_response,
        num_mismatched=sample.num_mismatched or 0,
        num_flagged=int(sample.is_flagged),
    )
