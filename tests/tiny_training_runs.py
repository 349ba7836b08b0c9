"""A whole training of a tiny draft, from prompts to export, for tests of runs and flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specdec_core.config.training_run import TrainingRunConfig, training_config
from tests.draft_prompts import questions, write_chat_checkpoint, write_prompts


def tiny_parameters(folder: Path) -> dict[str, Any]:
    """Flat parameters of a training of seconds; target and prompts are written into `folder`."""
    target = folder / "target"
    if not target.exists():
        write_chat_checkpoint(target, num_layers=3, max_position_embeddings=2048)
        write_prompts(folder / "prompts.jsonl", questions(14))
    return {
        "target": f"path:{target}",
        "dtype": "float32",
        "prompts": [str(folder / "prompts.jsonl")],
        "num_prompts": 14,
        "max_tokens": 96,
        "max_new_tokens": 12,
        "hidden_dtype": "float32",
        "draft": "pruned:layers=0/2",
        "gamma": 3,
        "num_epochs": 2,
        "learning_rate": 3e-3,
        "batch_size": 4,
        "micro_batch_tokens": 128,
        "precision": "float32",
        "num_validation": 4,
        "validate_every": 3,
        "eval_domains": ["qa"],
        "eval_shapes": ["chain"],
        "eval_temperatures": [0.0, 1.0],
        "eval_branching": [2, 1],
        "eval_num_nodes": 4,
        "eval_num_items": 3,
        "eval_max_new_tokens": 24,
        "eval_min_trials": 4,
    }


def tiny_run(folder: Path, preset: str = "wtv", **changes: Any) -> TrainingRunConfig:
    """Return such a training under the loss of a preset."""
    found = training_config(preset, {**tiny_parameters(folder), **changes})
    assert isinstance(found, TrainingRunConfig)
    return found
