"""Tiny chat checkpoints, prompt files and settings for tests of training data."""

import json
from pathlib import Path

from specdec_core.config.draft_data import DataConfig
from specdec_core.config.settings import Settings
from specdec_core.models.tiny import write_tiny_checkpoint

CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def write_chat_checkpoint(folder: Path, **options: object) -> Path:
    """Write a tiny checkpoint whose tokenizer spells bytes and brings a chat template."""
    write_tiny_checkpoint(folder, **{"dtype": "float32", **options})
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return folder


def write_prompts(path: Path, texts: list[object], prefix: str = "") -> Path:
    """Write a prompt file: text is a prompt, a list turns, a dictionary a whole line."""
    lines = []
    for number, text in enumerate(texts):
        key = "turns" if isinstance(text, list) else "prompt"
        row = text if isinstance(text, dict) else {"domain": "talk", key: text}
        lines.append(json.dumps({"id": f"{prefix}{number}", **row}))
    path.write_text("\n".join(lines) + "\n")
    return path


def questions(num: int, word: str = "item") -> list[object]:
    """Return prompts of different lengths that are all different."""
    return [f"Tell me about {word} {number} " + "x" * (number % 7) for number in range(num)]


def data_config(checkpoint: Path, *prompts: Path, **changes: object) -> DataConfig:
    """Return a small configuration on `checkpoint`."""
    fields: dict[str, object] = {
        "target": f"path:{checkpoint}",
        "prompts": tuple(map(str, prompts)),
        "num_prompts": 4,
        "max_tokens": 96,
        "max_new_tokens": 12,
        "batch_size": 4,
        "hidden_dtype": "float32",
    }
    return DataConfig.model_validate({**fields, **changes})


def settings_of(folder: Path, **changes: object) -> Settings:
    """Return settings that keep everything below `folder` and know no public data."""
    fields = {
        "home": folder / "home",
        "cache": folder / "cache",
        "data": "builtin",
        "threads": 1,
        "device": "cpu",
        "native": False,
    }
    return Settings.model_validate({**fields, **changes})
