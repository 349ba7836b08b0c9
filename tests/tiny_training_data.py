"""A folder of training data by a tiny target, as the data stage leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from specdec_core.config.draft_data import DataConfig
from specdec_core.config.settings import Settings
from specdec_core.config.training import TrainConfig
from specdec_core.models.files import tokenizer_identity
from specdec_core.models.reference import resolve_model
from specdec_core.models.tiny import write_tiny_checkpoint
from specdec_core.training.manifest import (
    SHARD_PROMPTS,
    DataCounts,
    DataManifest,
    shard_path,
    write_manifest,
)
from specdec_core.training.records import ShardWriter, StoredSample
from specdec_core.training.target import FrozenTarget

KEY = "d" * 64


def settings_of(folder: Path, **options: Any) -> Settings:
    """Return settings whose state and caches lie in `folder`."""
    usual = {"threads": 1, "device": "cpu", "native": False}
    return Settings(home=folder / "home", cache=folder / "cache", **{**usual, **options})


def write_target(folder: Path, **options: Any) -> Path:
    """Write a tiny float32 target of three blocks."""
    return write_tiny_checkpoint(folder, "qwen2", dtype="float32", num_layers=3, **options)


def write_data(
    folder: Path, target: Path, settings: Settings, *, num: int = 24, is_broken: bool = False
) -> Path:
    """Write finished data of `num` prompts answered with random tokens, hidden states stored.

    Broken data has states that are no numbers from the second sample on.
    """
    model = resolve_model(f"path:{target}", settings.cache_dir)
    frozen = FrozenTarget.load(model, dtype="float32", device="cpu", settings=settings)
    config = DataConfig(target=model.reference, num_prompts=num, hidden_dtype="float32")
    generator = torch.Generator().manual_seed(0)
    samples = []
    for index in range(num):
        length = 10 + int(torch.randint(12, (), generator=generator))
        ids = tuple(torch.randint(1, 200, (length,), generator=generator).tolist())
        ((hidden, _),) = frozen.states([ids])
        if is_broken and index:
            hidden = torch.full_like(hidden, float("nan"))
        samples.append(
            StoredSample(
                sample_id=f"s{index:03d}",
                prompt_id=f"p{index:03d}",
                source="tiny",
                token_ids=ids,
                spans=((3, length),),
                end="length",
                num_mismatched=0,
                states=hidden[:, None],
            )
        )
    folder.mkdir(parents=True)
    for start in range(0, num, SHARD_PROMPTS):
        part = samples[start : start + SHARD_PROMPTS]
        path = shard_path(folder, start // SHARD_PROMPTS)
        with ShardWriter(path, key=KEY, hidden_dtype="float32") as writer:
            for sample in part:
                writer.add(sample)
            writer.finish(DataCounts())
    manifest = DataManifest(
        key=KEY,
        config=config,
        target=model.reference,
        target_identity=model.identity,
        dtype="float32",
        device="cpu",
        kernels="torch",
        tokenizer_identity=tokenizer_identity(target, settings.cache_dir),
        template_hash="t" * 64,
        code_version="tiny",
        hidden_size=frozen.arch.hidden_size,
        vocab_size=frozen.arch.vocab_size,
        num_prompts=num,
        prompt_ids=tuple(f"p{index:03d}" for index in range(num)),
        prompts_hash="h" * 64,
        dropped={},
        counts=DataCounts(num_samples=num),
    )
    write_manifest(folder, manifest)
    return folder


def train_config(**changes: Any) -> TrainConfig:
    """Return a short training of a draft with two of the target's blocks."""
    usual: dict[str, Any] = {
        "draft": {"kind": "pruned", "layers": (0, 2)},
        "loss": "kl+0.1eal",
        "gamma": 3,
        "num_epochs": 2,
        "learning_rate": 3e-3,
        "batch_size": 4,
        "micro_batch_tokens": 60,
        "precision": "float32",
        "num_validation": 4,
        "validate_every": 4,
    }
    return TrainConfig(**{**usual, **changes})
