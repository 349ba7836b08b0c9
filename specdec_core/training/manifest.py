"""What a folder of training data says of itself, and how large it will be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from specdec_core.config.base import Record
from specdec_core.config.draft_data import DataConfig
from specdec_core.config.dtype import DType
from specdec_core.config.settings import KernelChoice
from specdec_core.errors import ConfigError
from specdec_core.hashing import json_hash
from specdec_core.models.files import write_whole

FORMAT_VERSION = 1
SHARD_PROMPTS = 128
MANIFEST = "manifest.json"

# Beyond the tokens' own bytes: of a sample names, spans and its columns' places in the footer.
_SAMPLE_BYTES = 1050
_SHARD_BYTES = 1950
_TOKEN_BYTES = 4


class DataCounts(Record):
    """What was written, in numbers that may be summed over shards."""

    num_samples: int = 0
    num_tokens: int = 0
    num_response_tokens: int = 0
    num_generated: int = Field(0, description="response tokens that the target wrote here")
    num_compared: int = Field(0, description="of those, written greedily")
    num_mismatched: int = Field(0, description="of those, not what the training forward ranks best")
    num_flagged: int = Field(
        0, description="samples where that share is above 1 %, by several tokens"
    )
    num_too_long: int = Field(0, description="later turns left out as they did not fit")
    num_cut: int = Field(0, description="finished conversations cut to the limit")
    num_bytes: int = Field(0, description="of the shards")
    generation_s: float = Field(0.0, description="seconds of generation, summed over workers")
    states_s: float = Field(0.0, description="seconds of teacher-forced passes, likewise")

    def __add__(self, other: DataCounts) -> DataCounts:
        mine, theirs = self.model_dump(), other.model_dump()
        return DataCounts(**{name: mine[name] + theirs[name] for name in mine})


class DataManifest(Record):
    """What a folder of training data holds, and everything that made it so.

    Attributes:
        key: `data_key` of it.
    """

    format_version: Literal[1] = 1
    key: str
    config: DataConfig
    target: str = Field(description="model reference, canonical text")
    target_identity: str
    dtype: DType
    device: str
    kernels: KernelChoice
    tokenizer_identity: str
    template_hash: str
    domains: tuple[str, ...] = Field((), description="of the prompts; the template hash is theirs")
    code_version: str
    hidden_size: int = Field(ge=1, description="of the target")
    vocab_size: int = Field(ge=1, description="rows of the target's head")
    num_prompts: int = Field(ge=1)
    prompt_ids: tuple[str, ...] = Field(description="in the order drawn; shards follow it")
    prompts_hash: str = Field(description="of ids and texts of the prompts")
    dropped: dict[str, int] = Field(description="prompts left out, by reason")
    counts: DataCounts | None = Field(None, description="None until every shard is there")

    @property
    def num_shards(self) -> int:
        """Shards when complete."""
        return -(-self.num_prompts // SHARD_PROMPTS)

    @property
    def taps(self) -> tuple[int, ...]:
        """Hidden states stored beside the head's input."""
        return self.config.taps if self.config.hidden == "taps" else ()


# What is asked of the target and stored of it. Prompts have a hash of their own, models too, and
# how many prompts are answered together changes nothing.
_OPTIONS = (
    "max_turns",
    "max_tokens",
    "max_new_tokens",
    "temperature",
    "hidden",
    "taps",
    "hidden_dtype",
    "top_k",
)


def data_key(manifest: DataManifest) -> str:
    """Hex SHA-256 over the contents of every input of training data, places left out.

    Prompts, target, tokenizer, template, type, kernels, limits, sampling, what is stored, format
    and code; no path, time, batch size or number of workers.
    """
    config = manifest.config.model_dump(mode="json")
    content = {
        "format_version": manifest.format_version,
        "shard_prompts": SHARD_PROMPTS,
        "prompts": manifest.prompts_hash,
        "target": manifest.target_identity,
        "tokenizer": manifest.tokenizer_identity,
        "template": manifest.template_hash,
        "dtype": manifest.dtype,
        "device": manifest.device.partition(":")[0],
        "kernels": manifest.kernels,
        "code": manifest.code_version,
        # Greedy answers draw nothing.
        "seed": config["seed"] if config["temperature"] else None,
        **{name: config[name] for name in _OPTIONS},
    }
    return json_hash(content)


def shard_path(folder: Path, index: int) -> Path:
    """Return where shard `index` of the data in `folder` is."""
    return folder / f"shard-{index:05d}.parquet"


def estimate_bytes(
    num_samples: int,
    num_tokens: int,
    num_response_tokens: int,
    *,
    config: DataConfig,
    hidden_size: int,
) -> int:
    """Return how many bytes samples take on disk.

    Args:
        num_samples: Samples.
        num_tokens: Tokens of all of them.
        num_response_tokens: Response tokens among these.
        config: What is stored of the target.
        hidden_size: Of the target.
    """
    num_states = 0 if config.hidden == "none" else 1 + len(config.taps)
    state_bytes = hidden_size * (4 if config.hidden_dtype == "float32" else 2)
    per_token = _TOKEN_BYTES + num_states * state_bytes
    per_response = config.top_k * 2 * _TOKEN_BYTES
    num_shards = -(-num_samples // SHARD_PROMPTS)
    return (
        num_samples * _SAMPLE_BYTES
        + num_shards * _SHARD_BYTES
        + num_tokens * per_token
        + num_response_tokens * per_response
    )


def sample_name(prompt_id: str, turn: int) -> str:
    """Return the name of the sample that answers a turn of a prompt, 0 being the first."""
    return f"{prompt_id}#{turn}" if turn else prompt_id


def read_manifest(folder: Path) -> DataManifest:
    """Return what the data in `folder` says of itself.

    Raises:
        ConfigError: if there is none, or of another format than this code writes.
    """
    try:
        content = json.loads((folder / MANIFEST).read_bytes())
    except OSError as error:
        raise ConfigError(
            f"there is no training data in {folder} ({error.strerror}): make it with "
            "'specdec train'"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{folder / MANIFEST} is not JSON ({error}): {_rebuild(folder)}"
        ) from error
    found = content.get("format_version") if isinstance(content, dict) else None
    if found != FORMAT_VERSION:
        raise ConfigError(
            f"the training data in {folder} has format {found}, this version reads "
            f"{FORMAT_VERSION}: {_rebuild(folder)}"
        )
    try:
        return DataManifest.model_validate(content)
    except ValidationError as error:
        raise ConfigError(
            f"the manifest in {folder} is not valid ({error.error_count()} faults): "
            f"{_rebuild(folder)}"
        ) from error


def write_manifest(folder: Path, manifest: DataManifest) -> None:
    """Write the manifest by temporary name and rename."""
    write_whole(folder / MANIFEST, manifest.model_dump_json(indent=1) + "\n")


def _rebuild(folder: Path) -> str:
    return f"'rm -r {folder}' and run the same 'specdec train' again, which makes it anew"
