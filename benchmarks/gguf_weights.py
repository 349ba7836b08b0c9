"""Our converted weights as a bfloat16 GGUF, so that llama.cpp multiplies by the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from gguf import (
    MODEL_ARCH,
    GGMLQuantizationType,
    GGUFReader,
    GGUFValueType,
    GGUFWriter,
    LlamaFileType,
    ReaderField,
    get_tensor_name_map,
)
from safetensors import safe_open

# Written by the writer itself, or different in the new file.
_OWN_FIELDS = ("general.architecture", "general.file_type")


def write_bfloat16(packaged: Path, weights: Path, destination: Path) -> None:
    """Write a Llama checkpoint as GGUF: matrices in bfloat16, vectors (norms) in float32.

    Args:
        packaged: A GGUF of the same model, whose settings and tokenizer are copied.
        weights: Our safetensors of it, bfloat16.
        destination: The file to write.

    Raises:
        ValueError: if a tensor has no name in GGUF, or the two files do not hold the same ones.
    """
    reader = GGUFReader(packaged)
    writer = GGUFWriter(destination, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in _OWN_FIELDS:
            _copy_field(field, writer)
    writer.add_file_type(LlamaFileType.MOSTLY_BF16)
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, _setting(reader, "llama.block_count"))
    written = set()
    with safe_open(weights, "pt") as source:
        for key in source.keys():  # noqa: SIM118 - not a mapping
            name = names.get_name(key, try_suffixes=(".weight",))
            if name is None:
                raise ValueError(f"{weights}: tensor {key} has no name in a Llama GGUF")
            _add_tensor(writer, name, _as_stored(name, source.get_tensor(key), reader))
            written.add(name)
    expected = {tensor.name for tensor in reader.tensors}
    if written != expected:
        raise ValueError(
            f"{weights} and {packaged} hold different tensors: {sorted(written ^ expected)[:4]}"
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _setting(reader: GGUFReader, key: str) -> Any:
    return reader.fields[key].contents()


def _copy_field(field: ReaderField, writer: GGUFWriter) -> None:
    kind = field.types[0]
    inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
    writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)


def _as_stored(name: str, weight: torch.Tensor, reader: GGUFReader) -> torch.Tensor:
    """Return the weight with the rows of queries and keys in llama.cpp's order.

    There a head's rotary pairs lie side by side; in the checkpoint they lie half a head apart.
    """
    heads = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    setting = heads.get(name.split(".")[-2])
    if setting is None:
        return weight
    halves = weight.reshape(_setting(reader, setting), 2, -1, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


def _add_tensor(writer: GGUFWriter, name: str, weight: torch.Tensor) -> None:
    if weight.dtype != torch.bfloat16:
        raise ValueError(f"tensor {name} is {weight.dtype}, expected bfloat16")
    if weight.ndim == 1:
        writer.add_tensor(name, weight.float().numpy())
    else:
        bits = weight.contiguous().view(torch.uint16).numpy()
        writer.add_tensor(name, bits, raw_dtype=GGMLQuantizationType.BF16)
